"""`ray.tune.trainable`."""

from carril.as_ray import missing as _missing
from carril.tune.trainable import PlacementGroupFactory, Trainable, TrainingResult, with_parameters, with_resources

__all__ = ["PlacementGroupFactory", "Trainable", "TrainingResult", "with_parameters", "with_resources"]

__getattr__ = _missing.attributes("ray.tune.trainable", ("FunctionTrainable", "wrap_function"), ("trainable", "util"))
