"""The group of a run's workers over shared memory, and the arrays that go through it.

It is made at its first use: rank 0 offers it, and the others learn its address through the head. Neither numpy nor torch is
imported here: whoever gives an array has imported what made it.

GROUP-1: an array is given to the native side contiguous, of a type that it knows, and is held until the call returns.
"""

import math
from typing import TYPE_CHECKING, Any, Final

from carril.exceptions import ConfigError, NotAvailableError, kind_of

if TYPE_CHECKING:
    from carril._native import Collective
    from carril.train._session import SessionLike

# As long as Gloo waits.
TIMEOUT_S: Final = 1800.0
KINDS: Final = ("float32", "float64", "int64")

_group: "tuple[SessionLike, Collective] | None" = None


def made(session: "SessionLike", name: str) -> "Collective":
    """A new group of all workers. Every rank must ask for one at the same point."""
    from carril._native import Collective
    from carril.train.collective import broadcast_from_rank_zero

    if getattr(session, "is_local", False) and session.world_size > 1:
        raise NotAvailableError(
            f"`{name}` is for runs with workers, and this one is under torchrun",
            hints=["use `torch.distributed` there, or let the trainer start the workers"],
        )
    if session.local_world_size != session.world_size:
        raise NotAvailableError(
            f"`{name}` works between the workers of one host, and this run has {session.local_world_size} of "
            f"{session.world_size} on this one",
            hints=["collectives between hosts come later: use `torch.distributed` for them"],
        )
    if session.rank == 0:
        group, address = Collective.offer(session.world_size)
        broadcast_from_rank_zero(address)
    else:
        group = Collective.join(broadcast_from_rank_zero(""), session.rank)
    # All are in: from here on rank 0 may leave before the others have used it.
    group.all_reduce("int64", (0, 0), "sum", TIMEOUT_S)
    return group


def joined(session: "SessionLike", name: str) -> "Collective":
    """The group of the training function, made at the first call."""
    global _group
    if _group is None or _group[0] is not session:
        leave()
        _group = session, made(session, name)
    return _group[1]


def leave() -> None:
    """The function has returned: ranks that still wait for this one are notified."""
    global _group
    if _group is not None:
        _group[1].close()
        _group = None


def is_tensor(array: Any) -> bool:
    return hasattr(array, "data_ptr")


def kind(array: Any, name: str) -> str:
    """The type of the values, or an error that says what can be sent."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise ConfigError(f"`{name}` takes a numpy array or a tensor, not {kind_of(array)}")
    if is_tensor(array) and array.device.type != "cpu":
        raise ConfigError(
            f"`{name}` takes tensors on the CPU, and this one is on `{array.device}`",
            hints=["use `torch.distributed` for tensors on a GPU"],
        )
    found = str(array.dtype).removeprefix("torch.")
    if found not in KINDS or not _is_native(array):
        raise ConfigError(f"`{name}` takes values of {', '.join(KINDS)}, not of {array.dtype}")
    return found


def _is_native(array: Any) -> bool:
    return is_tensor(array) or bool(array.dtype.isnative)


def contiguous(array: Any) -> Any:
    """The array itself where its values lie one after the other, or a copy of it."""
    if is_tensor(array):
        return array.detach().contiguous()
    return array if array.flags.c_contiguous else array.copy(order="C")


def copied(array: Any) -> Any:
    """A new contiguous array with the same values."""
    if is_tensor(array):
        import torch

        return array.detach().clone(memory_format=torch.contiguous_format)
    import numpy

    # An array also of what numpy gives for a single value.
    return numpy.array(array, order="C", copy=True)


def empty(like: Any, shape: tuple[int, ...]) -> Any:
    """A new array of that shape, with the type of another."""
    if is_tensor(like):
        return like.new_empty(shape)
    import numpy

    return numpy.empty(shape, dtype=like.dtype)


def place(array: Any) -> tuple[int, int]:
    """Where the values of a contiguous array begin, and how many there are."""
    address = array.data_ptr() if is_tensor(array) else array.ctypes.data
    return address, math.prod(array.shape)


def check_out(out: Any, array: Any, name: str) -> None:
    """An error if `out` cannot take the result for `array`."""
    fits = is_tensor(out) == is_tensor(array) and kind(out, name) == kind(array, name) and out.shape == array.shape
    if not fits:
        raise ConfigError(f"`out` of `{name}` must be of the kind, the type and the shape of the values")
    usable = out.is_contiguous() if is_tensor(out) else out.flags.c_contiguous and out.flags.writeable
    if not usable:
        raise ConfigError(f"`out` of `{name}` must be contiguous and writable")
