"""`ray.tune.stopper`: carril's own."""

from carril.as_ray import missing as _missing
from carril.tune.stopper import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.stopper",
    (),
    source="carril.tune.stopper",
)
