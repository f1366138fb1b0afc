"""`ray.tune.context`."""

from carril.tune import TuneContext, get_context

__all__ = ["TuneContext", "get_context"]
