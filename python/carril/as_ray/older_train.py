"""What Ray 1.x called inside a training function: metrics by keyword, and the ranks as functions of `ray.train`.

Outside a training function the ranks answer as if there were one worker, as they did then. Inside a function that is tuned
by itself, today's Ray has the functions of `ray.tune` for it, and warns of those of `ray.train`.
"""

from typing import TYPE_CHECKING, Any

from carril import train as _train
from carril.as_ray.session import get_local_rank, get_world_rank, get_world_size

if TYPE_CHECKING:
    from carril.train import Checkpoint, TrainContext

__all__ = ["get_checkpoint", "get_context", "local_rank", "report", "world_rank", "world_size"]


def _warn_in_tuned_function(name: str) -> None:
    import sys

    session = sys.modules.get("carril.tune._session")
    if session is None or not session.in_function():
        return
    import warnings

    from carril.as_ray.annotations import RayDeprecationWarning

    text = f"`ray.train.{name}` in a function that is tuned is deprecated: use `ray.tune.{name}`"
    warnings.warn(text, RayDeprecationWarning, stacklevel=3)


def get_checkpoint() -> "Checkpoint | None":
    """`carril.train.get_checkpoint`."""
    _warn_in_tuned_function("get_checkpoint")
    return _train.get_checkpoint()


def get_context() -> "TrainContext":
    """`carril.train.get_context`."""
    _warn_in_tuned_function("get_context")
    return _train.get_context()


def report(
    metrics: dict[str, Any] | None = None,
    checkpoint: Any = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: Any = None,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Any = None,
    validation: Any = False,
    **values: Any,
) -> None:
    """`carril.train.report`; Ray 1.x gave each metric by keyword: `report(loss=0.5)`."""
    if metrics is None and not values:
        raise TypeError("report() missing 1 required positional argument: 'metrics'")
    _warn_in_tuned_function("report")
    _train.report(
        {**(metrics or {}), **values} if values else metrics,  # type: ignore[arg-type]
        checkpoint,
        checkpoint_dir_name,
        checkpoint_upload_mode,
        delete_local_checkpoint_after_upload,
        checkpoint_upload_fn,
        validation,
    )


def world_rank() -> int:
    return get_world_rank()


def local_rank() -> int:
    return get_local_rank()


def world_size() -> int:
    return get_world_size()
