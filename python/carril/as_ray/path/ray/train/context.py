"""`ray.train.context`: the context of a worker."""

from carril.train import TrainContext, get_context

__all__ = ["TrainContext", "get_context"]
