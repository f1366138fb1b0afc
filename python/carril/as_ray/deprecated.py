"""What today's Ray has given up, where a script still uses it: a warning in the same place.

Today's generation raises that warning. A script of the older one that names what both have (`ray.train.RunConfig`) goes
on here, so it is raised only for who says that the script is of today: `RAY_TRAIN_V2_ENABLED=1`.
"""

import sys
import warnings
from typing import TYPE_CHECKING

from carril._internal.generation import is_strictly_of_today
from carril.as_ray.annotations import RayDeprecationWarning

if TYPE_CHECKING:
    from carril.train import DataParallelTrainer


def tell(what: str, instead: str) -> None:
    """Warns of a use, at the line of the script that has it."""
    text = f"{what} is deprecated: {instead}"
    if is_strictly_of_today():
        raise DeprecationWarning(text)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "carril":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RayDeprecationWarning, stacklevel=level)


def tell_of_trainer(trainer: "DataParallelTrainer") -> None:
    """Of the arguments of a trainer, and of the fields of its configurations."""
    from carril.train import UserCallback

    run, scaling = trainer.run_config, trainer.scaling_config
    tune = "it is a setting of `ray.tune.RunConfig`"
    report = "the training function decides itself when it reports a checkpoint"
    uses = (
        (trainer.resume_from_checkpoint is not None, "`resume_from_checkpoint`", "load it in the training function"),
        (bool(scaling.trainer_resources), "`ScalingConfig(trainer_resources=…)`", "nothing has to be reserved there"),
        (bool(run.failure_config.fail_fast), "`FailureConfig(fail_fast=…)`", "use `max_failures=0`"),
        (bool(run.checkpoint_config.checkpoint_frequency), "`CheckpointConfig(checkpoint_frequency=…)`", report),
        (run.checkpoint_config.checkpoint_at_end is not None, "`CheckpointConfig(checkpoint_at_end=…)`", report),
        (run.verbose != 1, "`RunConfig(verbose=…)`", tune),
        (run.stop is not None, "`RunConfig(stop=…)`", tune),
        (run.progress_reporter is not None, "`RunConfig(progress_reporter=…)`", tune),
        (run.sync_config is not None, "`RunConfig(sync_config=…)`", tune),
        (bool(run.log_to_file), "`RunConfig(log_to_file=…)`", tune),
        (
            any(not isinstance(one, UserCallback) for one in run.callbacks),
            "a callback of Tune in the `RunConfig` of a trainer",
            "derive it from `ray.train.UserCallback`",
        ),
    )
    for is_used, what, instead in uses:
        if is_used:
            tell(what, instead)
