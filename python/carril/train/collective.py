"""Collectives for training functions, independent of the framework's. Every rank must call them in the same order.

`barrier` and `broadcast_from_rank_zero` go through the agent and the head. They are for control: a path to agree on, a
value that rank 0 read from a file. The others are for arrays, and go through memory that the workers of a host share.
They take numpy arrays and CPU tensors of float32, float64 and int64, and return a new one of the same kind. A rank that
dies meanwhile, or asks for something else, is named to all others in a `CollectiveError`.
"""

from typing import Any, TypeVar

from carril.exceptions import ConfigError
from carril.train import _group, _session

__all__ = ["all_gather", "all_reduce", "barrier", "broadcast", "broadcast_from_rank_zero", "reduce_scatter"]

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


def all_reduce(x: T, op: str = "sum", *, out: T | None = None, timeout_s: float = _group.TIMEOUT_S) -> T:
    """The "sum", "mean" or "max" of the arrays of all ranks, value by value: the same bits on every rank and in every run.

    Values are joined in the order of the ranks. The result is a new array, or `out`, which may be `x` itself.
    """
    session, name = _session.current("all_reduce()"), "all_reduce()"
    values: Any = x
    kind = _group.kind(values, name)
    result: Any = out
    if result is None:
        result = _group.copied(values)
    else:
        _group.check_out(result, values, name)
        if result is not values:
            result[...] = values
    _group.joined(session, name).all_reduce(kind, _group.place(result), op, timeout_s)
    given: T = result
    return given


def broadcast(x: T, src: int = 0, *, timeout_s: float = _group.TIMEOUT_S) -> T:
    """The array of rank `src`, on every rank. The others give one of the same type and shape, whose values do not matter."""
    session, name = _session.current("broadcast()"), "broadcast()"
    values: Any = x
    kind, result = _group.kind(values, name), _group.copied(values)
    _group.joined(session, name).broadcast(kind, _group.place(result), src, timeout_s)
    given: T = result
    return given


def all_gather(x: T, *, timeout_s: float = _group.TIMEOUT_S) -> T:
    """The arrays of all ranks, stacked in their order: the first dimension of the result is the rank."""
    session, name = _session.current("all_gather()"), "all_gather()"
    values: Any = x
    kind, own = _group.kind(values, name), _group.contiguous(values)
    result = _group.empty(own, (session.world_size, *own.shape))
    _group.joined(session, name).all_gather(kind, _group.place(own), _group.place(result), timeout_s)
    given: T = result
    return given


def reduce_scatter(x: T, op: str = "sum", *, timeout_s: float = _group.TIMEOUT_S) -> T:
    """This rank's part of the "sum", "mean" or "max" of all arrays: the first dimension is divided among the ranks."""
    session, name = _session.current("reduce_scatter()"), "reduce_scatter()"
    values: Any = x
    kind, whole = _group.kind(values, name), _group.contiguous(values)
    ranks = session.world_size
    if not whole.shape or whole.shape[0] % ranks:
        raise ConfigError(
            f"`{name}` divides the first dimension among {ranks} ranks, and the shape is {tuple(whole.shape)}"
        )
    result = _group.empty(whole, (whole.shape[0] // ranks, *whole.shape[1:]))
    _group.joined(session, name).reduce_scatter(kind, _group.place(whole), _group.place(result), op, timeout_s)
    given: T = result
    return given
