"""`ray.tune.search.sample`: the domains by their classes, and the functions that make them."""

from carril.as_ray import missing as _missing
from carril.tune.search.sample import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.search.sample",
    (),
    source="carril.tune.search.sample",
)
