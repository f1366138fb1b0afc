"""`ray.tune.execution`: what scripts take from there."""

from carril.as_ray import missing as _missing

__all__ = ["placement_groups"]

__getattr__ = _missing.attributes("ray.tune.execution", (), ("placement_groups",))
