"""`ray.tune.analysis.experiment_analysis`."""

from carril.tune import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
