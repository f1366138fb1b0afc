"""`ray.tune.sample`: the older path of `ray.tune.search.sample`."""

from carril.as_ray import missing as _missing
from carril.tune.search.sample import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.sample",
    (),
    source="carril.tune.search.sample",
)
