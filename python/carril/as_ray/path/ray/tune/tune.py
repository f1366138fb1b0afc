"""`ray.tune.tune`: where some scripts import `run` from."""

from carril.tune import run, run_experiments

__all__ = ["run", "run_experiments"]
