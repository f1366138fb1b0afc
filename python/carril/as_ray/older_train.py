"""What Ray 1.x called inside a training function: metrics by keyword, and the ranks as functions of `ray.train`.

Outside a training function the ranks answer as if there were one worker, as they did then.
"""

from typing import Any

from carril import train as _train
from carril.as_ray.session import get_local_rank, get_world_rank, get_world_size

__all__ = ["local_rank", "report", "world_rank", "world_size"]


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
