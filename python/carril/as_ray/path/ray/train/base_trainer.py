"""`ray.train.base_trainer`: where scripts of the older generation import the error of a failed run from."""

from carril.train import TrainingFailedError

__all__ = ["TrainingFailedError"]
