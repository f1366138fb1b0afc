"""`ray.air.config`: the older generation's configurations."""

from carril.as_ray import missing as _missing
from carril.as_ray.legacy import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"]

__getattr__ = _missing.attributes("ray.air.config", ("DatasetConfig",))
