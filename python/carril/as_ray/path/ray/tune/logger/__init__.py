"""`ray.tune.logger`: the loggers that are callbacks; the files of a trial are written without them."""

from carril.as_ray import missing as _missing
from carril.tune.logger import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.logger",
    (
        "CometLoggerCallback",
        "LegacyLoggerCallback",
        "Logger",
        "MLFLowLogger",
        "NoopLogger",
        "UnifiedLogger",
        "aim",
        "pretty_print",
    ),
    source="carril.tune.logger",
)
