"""`ray.tune.integration.pytorch_lightning`."""

from carril.tune.integration.pytorch_lightning import TuneReportCallback, TuneReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]
