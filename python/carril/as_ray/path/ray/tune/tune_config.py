"""`ray.tune.tune_config`."""

from carril.tune import ResumeConfig, TuneConfig

__all__ = ["ResumeConfig", "TuneConfig"]
