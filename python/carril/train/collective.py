"""Two small collectives for training functions, independent of the framework's: through the agent and the head.

They are for control, not for gradients: a path to agree on, a value that rank 0 read from a file. Every rank must call
them in the same order.
"""

from typing import TypeVar

from carril.train import _session

__all__ = ["barrier", "broadcast_from_rank_zero"]

T = TypeVar("T")


def barrier() -> None:
    """Returns when every rank has called it."""
    _session.current("barrier()").barrier()


def broadcast_from_rank_zero(data: T) -> T:
    """Returns what rank 0 gave, on every rank. What the others give is not looked at."""
    session = _session.current("broadcast_from_rank_zero()")
    # With `num_workers=0` there is nobody to send to, whatever torchrun's environment says.
    if session.world_size == 1 or getattr(session, "is_local", False):
        return data
    from carril._internal.pickling import dumps, loads

    if session.rank == 0:
        session.broadcast(dumps(data))
        return data
    result: T = loads(session.broadcast(None))
    return result
