"""`ray.train.v2.api.config`."""

from carril.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "LoggingConfig", "RunConfig", "ScalingConfig"]
