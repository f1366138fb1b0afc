"""`ray.tune.search.repeater`."""

from carril.tune.search.repeater import TRIAL_INDEX, Repeater

__all__ = ["TRIAL_INDEX", "Repeater"]
