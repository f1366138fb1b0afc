"""`ray.tune.callback`."""

from carril.tune.callback import Callback

__all__ = ["Callback"]
