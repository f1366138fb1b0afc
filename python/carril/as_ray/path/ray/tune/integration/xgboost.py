"""`ray.tune.integration.xgboost`."""

from carril.tune.integration.xgboost import TuneReportCallback, TuneReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]
