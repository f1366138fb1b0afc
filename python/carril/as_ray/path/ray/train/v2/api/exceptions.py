"""`ray.train.v2.api.exceptions`. `RayTrainError` is carril's base of all errors of training."""

from carril.exceptions import CarrilError as RayTrainError
from carril.train import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError

__all__ = ["ControllerError", "PreemptionError", "RayTrainError", "TrainingFailedError", "WorkerGroupError"]
