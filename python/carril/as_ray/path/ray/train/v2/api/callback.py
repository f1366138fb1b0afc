"""`ray.train.v2.api.callback`."""

from carril.train import UserCallback

__all__ = ["UserCallback"]
