"""What the older generation calls inside a training function: the functions of `ray.air.session`.

They differ from `carril.train` in two ways. Outside a training function they warn once and answer as if there were
one worker, so that a script can call its function directly. And only rank 0's checkpoint is kept: scripts of that
time give the same one on every rank. A directory is copied, never moved away from the caller: Ray did either, by
version, and only a script that still has its files works with both.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from carril.train import Checkpoint, TrainContext

T = TypeVar("T")

_warned: set[str] = set()


def _context(name: str, callers: int = 1) -> "TrainContext | None":
    """The worker's context, or None with a warning where this is no worker."""
    from carril import train

    try:
        return train.get_context()
    except RuntimeError:
        if name not in _warned:
            _warned.add(name)
            warnings.warn(
                f"`session.{name}` was called outside a training function: it does nothing and answers with a default",
                stacklevel=callers + 2,
            )
        return None


def _ask(name: str, answer: Callable[["TrainContext"], T], default: T) -> T:
    context = _context(name, callers=2)
    return default if context is None else answer(context)


def report(metrics: dict[str, Any], *, checkpoint: "Checkpoint | None" = None) -> None:
    """Reports metrics, and rank 0's checkpoint with them."""
    context = _context("report()")
    if context is None:
        return
    from carril import train

    train.report(metrics, checkpoint=checkpoint if context.get_world_rank() == 0 else None)


def get_checkpoint() -> "Checkpoint | None":
    """The newest checkpoint of the run, or None."""
    if _context("get_checkpoint()") is None:
        return None
    from carril import train

    return train.get_checkpoint()


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    if _context("get_dataset_shard()") is None:
        return None
    from carril import train

    return train.get_dataset_shard(dataset_name)


def get_world_size() -> int:
    return _ask("get_world_size()", lambda context: context.get_world_size(), 1)


def get_world_rank() -> int:
    return _ask("get_world_rank()", lambda context: context.get_world_rank(), 0)


def get_local_rank() -> int:
    return _ask("get_local_rank()", lambda context: context.get_local_rank(), 0)


def get_local_world_size() -> int:
    return _ask("get_local_world_size()", lambda context: context.get_local_world_size(), 1)


def get_node_rank() -> int:
    return _ask("get_node_rank()", lambda context: context.get_node_rank(), 0)


def get_experiment_name() -> str | None:
    return _ask("get_experiment_name()", lambda context: context.get_experiment_name(), None)


def get_trial_name() -> str | None:
    return _ask("get_trial_name()", lambda context: context.get_trial_name(), None)


def get_trial_id() -> str | None:
    return _ask("get_trial_id()", lambda context: context.get_trial_id(), None)


def get_trial_dir() -> str | None:
    return _ask("get_trial_dir()", lambda context: context.get_trial_dir(), None)


def get_trial_resources() -> Any:
    return _ask("get_trial_resources()", lambda context: context.get_trial_resources(), None)


def get_run_id() -> str | None:
    return _ask("get_run_id()", lambda context: context.get_run_id(), None)


def get_metadata() -> dict[str, Any] | None:
    return _ask("get_metadata()", lambda context: context.get_metadata(), None)


def get_storage() -> Any:
    return _ask("get_storage()", lambda context: context.get_storage(), None)
