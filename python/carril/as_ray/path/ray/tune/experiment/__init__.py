"""`ray.tune.experiment`: a trial as callbacks, schedulers and name creators see it."""

from carril.as_ray import missing as _missing
from carril.tune.schedulers._trial import Trial

__all__ = ["Trial"]

__getattr__ = _missing.attributes("ray.tune.experiment", ("Experiment",), ("trial",))
