"""Ray's exceptions, by name.

The errors of tasks, actors and objects are there for the `except` clauses of scripts. Nothing raises them before
carril has tasks, but for `RayTaskError`, which a trial fails with; training raises `ray.train.TrainingFailedError` and its kinds, which are carril's. `RayError` is
carril's own base, so that a clause that catches it catches everything of ours.
"""

from typing import Any

from carril.exceptions import CarrilError as RayError
from carril.exceptions import ConnectionLostError as RaySystemError


class RayTaskError(RayError):
    """A task raised an exception."""

    cause: BaseException | None = None


def task_error(text: str, cause: BaseException) -> RayTaskError:
    """An error of the user's code: as in Ray it is also of the kind that was raised, so that `except ValueError` catches it."""
    error = RayTaskError(text, code="user-exception")
    error.cause = cause
    return _also(type(cause), error.args, error.__dict__)


def _also(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> RayTaskError:
    base: tuple[type[BaseException], ...] = (RayTaskError,) if issubclass(RayTaskError, kind) else (RayTaskError, kind)
    own = {"__reduce__": lambda error: (_also, (kind, error.args, error.__dict__)), "__module__": __name__}
    try:
        both = type(f"RayTaskError({kind.__name__})", base, own)
        made = both.__new__(both, *args)
    except TypeError:  # no class can be both
        made = RayTaskError.__new__(RayTaskError, *args)
    made.args = args
    made.__dict__.update(state)
    return made  # type: ignore[no-any-return]


class TaskCancelledError(RayError):
    """A task was cancelled."""


class RayActorError(RayError):
    """An actor is gone."""


class ActorDiedError(RayActorError):
    """An actor has died."""


class ActorUnavailableError(RayActorError):
    """An actor cannot be reached now."""


class WorkerCrashedError(RayError):
    """A task's process died."""


class NodeDiedError(RayError):
    """A node is gone."""


class OutOfMemoryError(RayError):
    """A task was ended because memory ran out."""


class ObjectStoreFullError(RayError):
    """There is no room for another object."""


class ObjectLostError(RayError):
    """An object is gone from every node."""


class ObjectFetchTimedOutError(ObjectLostError):
    """An object could not be fetched in time."""


class ObjectReconstructionFailedError(ObjectLostError):
    """An object could not be computed again."""


class OwnerDiedError(ObjectLostError):
    """The process that owned an object is gone."""


class GetTimeoutError(RayError, TimeoutError):
    """`get` took longer than its limit."""


class PendingCallsLimitExceeded(RayError):
    """An actor has too many calls waiting."""


class RuntimeEnvSetupError(RayError):
    """A runtime environment could not be made."""


class TaskUnschedulableError(RayError):
    """A task can never be placed."""


class ActorUnschedulableError(RayError):
    """An actor can never be placed."""


__all__ = [
    "ActorDiedError",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "GetTimeoutError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ObjectStoreFullError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "RayActorError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "RuntimeEnvSetupError",
    "TaskCancelledError",
    "TaskUnschedulableError",
    "WorkerCrashedError",
]
