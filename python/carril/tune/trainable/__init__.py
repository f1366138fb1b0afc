"""What is tuned: functions of a config, classes, and what is said about them."""

from carril.tune.trainable._names import check_trainable
from carril.tune.trainable._resources import PlacementGroupFactory, resources_of
from carril.tune.trainable._run import TrialOptions, run_trial
from carril.tune.trainable.registry import get_env_creator, get_trainable, register_env, register_trainable
from carril.tune.trainable.trainable import Trainable, TrainingResult
from carril.tune.trainable.util import with_parameters, with_resources

__all__ = [
    "PlacementGroupFactory",
    "Trainable",
    "TrainingResult",
    "TrialOptions",
    "check_trainable",
    "get_env_creator",
    "get_trainable",
    "register_env",
    "register_trainable",
    "resources_of",
    "run_trial",
    "with_parameters",
    "with_resources",
]
