"""`ray.tune.schedulers.trial_scheduler`."""

from carril.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = ["FIFOScheduler", "TrialScheduler"]
