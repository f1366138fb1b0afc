"""`ray.tune.integration.keras`."""

from carril.tune.integration.keras import TuneReportCallback, TuneReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]
