"""`ray.tune.suggest.repeater`: the older path."""

from carril.tune.search.repeater import TRIAL_INDEX, Repeater

__all__ = ["TRIAL_INDEX", "Repeater"]
