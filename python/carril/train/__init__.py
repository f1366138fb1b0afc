"""Training on many workers: trainers, their configuration, and what the training function calls.

The names are those of Ray Train. Each is loaded when it is first used, because a driver needs a few of them and a
worker others, and both should start fast.
"""

# Type checkers know this name. Importing it from `typing` would be most of the cost of importing this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from carril.exceptions import ControllerError as ControllerError
    from carril.exceptions import PreemptionError as PreemptionError
    from carril.exceptions import TrainingFailedError as TrainingFailedError
    from carril.exceptions import WorkerGroupError as WorkerGroupError
    from carril.train import collective as collective
    from carril.train import torch as torch
    from carril.train._callbacks import RunContext as RunContext
    from carril.train._callbacks import UserCallback as UserCallback
    from carril.train._checkpoint import Checkpoint as Checkpoint
    from carril.train._config import CheckpointConfig as CheckpointConfig
    from carril.train._config import FailureConfig as FailureConfig
    from carril.train._config import RunConfig as RunConfig
    from carril.train._config import ScalingConfig as ScalingConfig
    from carril.train._context import TrainContext as TrainContext
    from carril.train._kept import load_checkpoint as load_checkpoint
    from carril.train._kept import save_checkpoint as save_checkpoint
    from carril.train._more_config import BackendConfig as BackendConfig
    from carril.train._more_config import CheckpointConsistencyMode as CheckpointConsistencyMode
    from carril.train._more_config import CheckpointUploadMode as CheckpointUploadMode
    from carril.train._more_config import DataConfig as DataConfig
    from carril.train._more_config import LoggingConfig as LoggingConfig
    from carril.train._more_config import PreemptionInfo as PreemptionInfo
    from carril.train._more_config import ReportedCheckpoint as ReportedCheckpoint
    from carril.train._more_config import ReportedCheckpointStatus as ReportedCheckpointStatus
    from carril.train._more_config import SyncConfig as SyncConfig
    from carril.train._more_config import ValidationConfig as ValidationConfig
    from carril.train._more_config import ValidationFn as ValidationFn
    from carril.train._more_config import ValidationTaskConfig as ValidationTaskConfig
    from carril.train._older_trainer import Trainer as Trainer
    from carril.train._result import Result as Result
    from carril.train._session import get_all_reported_checkpoints as get_all_reported_checkpoints
    from carril.train._session import get_checkpoint as get_checkpoint
    from carril.train._session import get_context as get_context
    from carril.train._session import get_dataset_shard as get_dataset_shard
    from carril.train._session import get_preemption_info as get_preemption_info
    from carril.train._session import report as report
    from carril.train._trainer import DataParallelTrainer as DataParallelTrainer

TRAIN_DATASET_KEY = "train"

_HOMES = {
    "carril.exceptions": ("ControllerError", "PreemptionError", "TrainingFailedError", "WorkerGroupError"),
    "carril.train._callbacks": ("RunContext", "UserCallback"),
    "carril.train._checkpoint": ("Checkpoint",),
    "carril.train._config": ("CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"),
    "carril.train._context": ("TrainContext",),
    "carril.train._kept": ("load_checkpoint", "save_checkpoint"),
    "carril.train._more_config": (
        "BackendConfig",
        "CheckpointConsistencyMode",
        "CheckpointUploadMode",
        "DataConfig",
        "LoggingConfig",
        "PreemptionInfo",
        "ReportedCheckpoint",
        "ReportedCheckpointStatus",
        "SyncConfig",
        "ValidationConfig",
        "ValidationFn",
        "ValidationTaskConfig",
    ),
    "carril.train._older_trainer": ("Trainer",),
    "carril.train._result": ("Result",),
    "carril.train._session": (
        "get_all_reported_checkpoints",
        "get_checkpoint",
        "get_context",
        "get_dataset_shard",
        "get_preemption_info",
        "report",
    ),
    "carril.train._trainer": ("DataParallelTrainer",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_SUBMODULES = frozenset(("collective", "torch"))
_LATER = frozenset(("NCCLHangError", "huggingface", "jax", "lightgbm", "lightning", "tensorflow", "xgboost"))

__all__ = [
    "TRAIN_DATASET_KEY",
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "DataParallelTrainer",
    "FailureConfig",
    "LoggingConfig",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "RunContext",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "Trainer",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "collective",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "load_checkpoint",
    "report",
    "save_checkpoint",
    "torch",
]


def __getattr__(name: str) -> "Any":
    import importlib

    module = _MODULE_OF.get(name)
    value: Any
    if module is not None:
        value = getattr(importlib.import_module(module), name)
    elif name in _SUBMODULES:
        value = importlib.import_module("carril.train." + name)
    elif name in _LATER:
        from carril.exceptions import NotAvailableError

        raise NotAvailableError(f"`carril.train.{name}` is not built yet")
    else:
        raise AttributeError(f"module 'carril.train' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
