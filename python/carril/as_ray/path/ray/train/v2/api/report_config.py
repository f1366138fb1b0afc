"""`ray.train.v2.api.report_config`."""

from carril.train import CheckpointConsistencyMode, CheckpointUploadMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
