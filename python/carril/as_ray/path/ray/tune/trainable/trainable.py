"""`ray.tune.trainable.trainable`."""

from carril.tune.trainable import Trainable

__all__ = ["Trainable"]
