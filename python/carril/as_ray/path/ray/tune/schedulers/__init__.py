"""`ray.tune.schedulers`: carril's own."""

from carril.as_ray import missing as _missing
from carril.tune.schedulers import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.schedulers",
    (),
    (
        "async_hyperband",
        "hb_bohb",
        "hyperband",
        "median_stopping_rule",
        "pb2",
        "pbt",
        "resource_changing_scheduler",
        "trial_scheduler",
    ),
    source="carril.tune.schedulers",
)
