"""`ray.tune.error`."""

from carril.as_ray import missing as _missing
from carril.tune import TuneError

__all__ = ["TuneError"]

__getattr__ = _missing.attributes("ray.tune.error", ("AbortTrialExecution",))
