"""`ray.train.v2.api.context`."""

from carril.train import TrainContext

__all__ = ["TrainContext"]
