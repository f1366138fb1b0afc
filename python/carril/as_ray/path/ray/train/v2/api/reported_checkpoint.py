"""`ray.train.v2.api.reported_checkpoint`."""

from carril.train import ReportedCheckpoint, ReportedCheckpointStatus

__all__ = ["ReportedCheckpoint", "ReportedCheckpointStatus"]
