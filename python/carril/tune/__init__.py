"""`carril.tune`: hyper-parameter search, under the names of Ray Tune. Names are loaded when they are first used."""

from typing import TYPE_CHECKING, Any

_WHERE = {
    "carril.tune._config": ("ResumeConfig", "TuneConfig"),
    "carril.tune._context": ("TuneContext",),
    "carril.tune._experiment": ("Experiment",),
    "carril.tune._result_grid": ("ResultGrid",),
    "carril.tune._session": ("get_checkpoint", "get_context", "report"),
    "carril.tune._space": (
        "choice",
        "grid_search",
        "lograndint",
        "loguniform",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "qrandn",
        "quniform",
        "randint",
        "randn",
        "sample_from",
        "uniform",
    ),
    "carril.tune.analysis": ("ExperimentAnalysis",),
    "carril.tune.callback": ("Callback",),
    "carril.tune.error": ("TuneError",),
    "carril.tune.progress_reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "carril.tune.schedulers": ("create_scheduler",),
    "carril.tune.search": ("create_searcher",),
    "carril.tune.stopper": ("Stopper",),
    "carril.tune.trainable": (
        "PlacementGroupFactory",
        "Trainable",
        "register_env",
        "register_trainable",
        "with_parameters",
        "with_resources",
    ),
    "carril.tune.tune": ("run", "run_experiments"),
    "carril.tune.tuner": ("Tuner",),
    "carril.train._checkpoint": ("Checkpoint",),
    "carril.train._config": ("CheckpointConfig", "FailureConfig", "RunConfig"),
    "carril.train._more_config": ("SyncConfig",),
    "carril.train._result": ("Result",),
}
_FROM = {name: module for module, names in _WHERE.items() for name in names}
_MODULES = ("analysis", "callback", "error", "integration", "logger", "schedulers", "search", "stopper", "trainable")

__all__ = sorted([*_FROM, *_MODULES])

if TYPE_CHECKING:
    from carril.train._checkpoint import Checkpoint as Checkpoint
    from carril.train._config import CheckpointConfig as CheckpointConfig
    from carril.train._config import FailureConfig as FailureConfig
    from carril.train._config import RunConfig as RunConfig
    from carril.train._result import Result as Result
    from carril.tune._config import ResumeConfig as ResumeConfig
    from carril.tune._config import TuneConfig as TuneConfig
    from carril.tune._context import TuneContext as TuneContext
    from carril.tune._experiment import Experiment as Experiment
    from carril.tune._result_grid import ResultGrid as ResultGrid
    from carril.tune._session import get_checkpoint as get_checkpoint
    from carril.tune._session import get_context as get_context
    from carril.tune._session import report as report
    from carril.tune._space import choice as choice
    from carril.tune._space import grid_search as grid_search
    from carril.tune._space import lograndint as lograndint
    from carril.tune._space import loguniform as loguniform
    from carril.tune._space import qlograndint as qlograndint
    from carril.tune._space import qloguniform as qloguniform
    from carril.tune._space import qrandint as qrandint
    from carril.tune._space import qrandn as qrandn
    from carril.tune._space import quniform as quniform
    from carril.tune._space import randint as randint
    from carril.tune._space import randn as randn
    from carril.tune._space import sample_from as sample_from
    from carril.tune._space import uniform as uniform
    from carril.tune.analysis import ExperimentAnalysis as ExperimentAnalysis
    from carril.tune.callback import Callback as Callback
    from carril.tune.error import TuneError as TuneError
    from carril.tune.progress_reporter import CLIReporter as CLIReporter
    from carril.tune.progress_reporter import JupyterNotebookReporter as JupyterNotebookReporter
    from carril.tune.progress_reporter import ProgressReporter as ProgressReporter
    from carril.tune.schedulers import create_scheduler as create_scheduler
    from carril.tune.search import create_searcher as create_searcher
    from carril.tune.stopper import Stopper as Stopper
    from carril.tune.trainable import PlacementGroupFactory as PlacementGroupFactory
    from carril.tune.trainable import Trainable as Trainable
    from carril.tune.trainable import register_env as register_env
    from carril.tune.trainable import register_trainable as register_trainable
    from carril.tune.trainable import with_parameters as with_parameters
    from carril.tune.trainable import with_resources as with_resources
    from carril.tune.tune import run as run
    from carril.tune.tune import run_experiments as run_experiments
    from carril.tune.tuner import Tuner as Tuner


def __getattr__(name: str) -> Any:
    import importlib

    if name in _FROM:
        value = getattr(importlib.import_module(_FROM[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"carril.tune.{name}")
    else:
        raise AttributeError(f"module 'carril.tune' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
