"""`ray.tune.analysis`."""

from carril.as_ray import missing as _missing
from carril.tune import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]

__getattr__ = _missing.attributes("ray.tune.analysis", ("Analysis",), ("experiment_analysis",))
