"""`ray.tune`: carril's own names, loaded when they are used; `_older` has what only the older generation called."""

from carril.as_ray import missing as _missing
from carril.tune import __all__ as _names

from ._older import (
    checkpoint_dir,
    get_trial_dir,
    get_trial_id,
    get_trial_name,
    get_trial_resources,
    is_session_enabled,
    report,
)

_SUBMODULES = (
    "analysis",
    "callback",
    "context",
    "error",
    "execution",
    "experiment",
    "integration",
    "logger",
    "progress_reporter",
    "registry",
    "result",
    "result_grid",
    "sample",
    "schedulers",
    "search",
    "stopper",
    "suggest",
    "syncer",
    "trainable",
    "trial",
    "tune",
    "tune_config",
    "tuner",
)

__all__ = [
    "checkpoint_dir",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "is_session_enabled",
    "report",
]
# Without the submodules: `from ray.tune import *` must not import what only they need.
__all__ += [name for name in _names if name not in _SUBMODULES and name != "report"]

__getattr__ = _missing.attributes(
    "ray.tune",
    (
        "DurableTrainable",
        "Experiment",
        "docker",
        "durable",
        "function",
        "impl",
        "resources",
        "save_checkpoint",
        "session",
        "utils",
    ),
    _SUBMODULES,
    source="carril.tune",
)
