"""Ray's exceptions, by name.

The errors of tasks, actors and objects are there for the `except` clauses of scripts. `RayTaskError` is what a function
on data raises and what a trial fails with; as in Ray it is also what the user's code raised. Nothing raises the others
before carril has tasks; training raises `ray.train.TrainingFailedError` and its kinds, which are carril's. `RayError` is
carril's own base, so that a clause that catches it catches everything of ours.
"""

from carril.exceptions import CarrilError as RayError
from carril.exceptions import ConnectionLostError as RaySystemError
from carril.exceptions import UserCodeError as RayTaskError


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
