"""`ray.tune.integration.ray_train`."""

from carril.tune.integration.ray_train import TuneReportCallback

__all__ = ["TuneReportCallback"]
