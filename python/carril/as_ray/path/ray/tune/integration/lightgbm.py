"""`ray.tune.integration.lightgbm`."""

from carril.tune.integration.lightgbm import TuneReportCallback, TuneReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]
