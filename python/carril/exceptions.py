"""Every error that Carril raises, and the one map from an error's code to its class.

The native side knows codes, not classes: it calls `from_failure` for each error that it raises. An error keeps what
the retry policy goes by (`code`, `origin`, `retryable`) and the way out (`hints`), and survives pickling whole.

ERR-1: every code has exactly one class, and an unknown code is a bug of ours (`InternalError`).
ERR-2: `pickle.loads(pickle.dumps(error))` has the class, the text and the attributes of `error`.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

__all__ = [
    "AbortedError",
    "CarrilError",
    "CheckpointError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "ConfigError",
    "ConfigTypeError",
    "ConnectionLostError",
    "ControllerError",
    "FilesNotFoundError",
    "InternalError",
    "MetricsError",
    "NoColumnError",
    "NotAvailableError",
    "NotFoundError",
    "PlacementError",
    "PreemptionError",
    "RunExistsError",
    "StorageError",
    "TimedOutError",
    "TrainingFailedError",
    "UserCodeError",
    "VersionMismatchError",
    "WorkerDiedError",
    "WorkerGroupError",
    "from_failure",
]


def _restore(cls: type["CarrilError"], args: tuple[Any, ...], state: dict[str, Any]) -> "CarrilError":
    # Not `cls(*args)`: the constructors of some classes take other arguments than the text.
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _in_the_script_s_words(hint: str) -> str:
    """A script that runs under `carril as-ray` knows the name `ray`."""
    return hint.replace("carril.init(", "ray.init(") if os.environ.get("CARRIL_AS_RAY") == "1" else hint


def of_another_ray(function: str, name: str) -> list[str]:
    """A hint under `carril as-ray`, where some Ray had a parameter that ours does not have."""
    if os.environ.get("CARRIL_AS_RAY") != "1":
        return []
    from carril.as_ray import generations

    return generations.hints(function, name)


class CarrilError(Exception):
    """The base of all errors of Carril.

    `origin` is whose fault it is: "user", "infrastructure", "preemption" or "carril".
    """

    # So that a panic of the native side can be one of ours (see `Panic`): a base must not add anything to its layout.
    __slots__ = ()

    default_code: ClassVar[str] = "internal"
    default_origin: ClassVar[str] = "user"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        origin: str | None = None,
        retryable: bool = False,
        hints: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.origin = origin if origin is not None else self.default_origin
        self.retryable = retryable
        self.hints = [_in_the_script_s_words(hint) for hint in hints]

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"hint: {hint}" for hint in self.hints)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class ConfigError(CarrilError, ValueError):
    """Something that was asked for cannot be: a field, a value, a combination."""

    default_code = "invalid-config"


class ConfigTypeError(ConfigError, TypeError):
    """A value of the wrong type was given."""


class NoColumnError(ConfigError, KeyError):
    """A column was named that is not there."""

    default_code = "no-column"


class MetricsError(ConfigError):
    """A report holds something that is no metric."""

    default_code = "bad-metrics"


class NotAvailableError(CarrilError, NotImplementedError):
    """The name exists and its behaviour is not built yet. Raised before a worker starts."""

    default_code = "not-available"


class PlacementError(CarrilError):
    """The workers can never fit on the nodes that there are."""

    default_code = "placement-impossible"


class RunExistsError(CarrilError):
    """A run of this name is there already: finished, unfinished or live."""

    default_code = "run-exists"


class StorageError(CarrilError):
    """The run's directory could not be written or read."""

    default_code = "storage"
    default_origin = "infrastructure"


class CheckpointError(CarrilError):
    """A checkpoint could not be stored, found or opened."""

    default_code = "checkpoint"
    default_origin = "infrastructure"


class ConnectionLostError(CarrilError):
    """The head, or the agent of a worker, is gone."""

    default_code = "head-lost"
    default_origin = "infrastructure"


class VersionMismatchError(CarrilError):
    """Two parts of Carril of different versions met."""

    default_code = "version-mismatch"


class CollectiveError(CarrilError):
    """The ranks called `report` or a collective in ways that do not fit together, or one of them died in it."""

    default_code = "collective-mismatch"


class CollectiveTimeoutError(CollectiveError):
    """Some ranks did not arrive in time."""

    default_code = "collective-timeout"
    default_origin = "infrastructure"


class TimedOutError(CarrilError):
    """Something took longer than its limit."""

    default_code = "timeout"
    default_origin = "infrastructure"


class NotFoundError(CarrilError, LookupError, RuntimeError):
    """What was asked for does not exist. A RuntimeError too, which Ray raises in such a place."""

    default_code = "not-found"


class FilesNotFoundError(NotFoundError, FileNotFoundError, ValueError):
    """There are no files to read: Ray raises the one where a path leads nowhere, the other where a directory is empty."""

    def __new__(cls, *args: Any, **_: Any) -> "FilesNotFoundError":
        # The first base's own makes objects without room for what an OSError holds.
        return FileNotFoundError.__new__(cls, *args)


class InternalError(CarrilError):
    """A bug of Carril's own."""

    __slots__ = ()

    default_origin = "carril"


class Panic(InternalError):
    """A panic of the native side. The native module makes it the base of what a panic becomes, which is no `Exception` otherwise."""

    __slots__ = ()

    def __init__(self, message: str = "") -> None:
        told = f"a bug of ours: {message}"
        super().__init__(told, hints=["please report it with the lines above this one, which say where it happened"])


class UserCodeError(CarrilError):
    """Stands for an exception of the user's code; `traceback` is its text.

    One of a function on data is also what the function raised, so that `except ValueError` catches it: `cause` is that
    exception, where it could be pickled.
    """

    default_code = "user-exception"
    traceback: str = ""
    cause: BaseException | None = None


class WorkerDiedError(CarrilError):
    """A worker's process ended without an exception: it exited, was killed, or never started.

    `exit_code` and `signal` are None where the other one, or neither, is known.
    """

    default_code = "worker-exited"
    exit_code: int | None = None
    signal: int | None = None


class TrainingFailedError(CarrilError, RuntimeError):
    """The base of what `fit()` raises when a run has failed."""

    default_code = "user-exception"


class AbortedError(TrainingFailedError):
    """The run was stopped before it was done."""

    default_code = "aborted"


class WorkerGroupError(TrainingFailedError):
    """One or more workers failed. `worker_failures` holds each rank's own exception."""

    def __init__(self, error_message: str, worker_failures: Mapping[int, BaseException], **details: Any) -> None:
        super().__init__(error_message, **details)
        self.error_message = error_message
        self.worker_failures = dict(worker_failures)


class ControllerError(TrainingFailedError):
    """The run was ended by something beside one worker: a callback, a checkpoint, calls that do not fit together.

    `controller_failure` is that, as an exception.
    """

    def __init__(self, controller_failure: BaseException, **details: Any) -> None:
        failure, text = controller_failure, str(controller_failure)
        if isinstance(failure, CarrilError):
            text = failure.message
            known = {name: getattr(failure, name) for name in ("code", "origin", "retryable", "hints")}
            details = {**known, **details}
        super().__init__(f"the run was ended by {type(failure).__name__}: {text}", **details)
        self.controller_failure = controller_failure


class HangError(TrainingFailedError):
    """A rank made no progress for `RunConfig(hang_timeout=…)`. The text says which one, and where the others wait."""


class PreemptionError(TrainingFailedError):
    """A scheduler took the machine away. The text names the last checkpoint, and the same command goes on from it."""

    default_origin = "preemption"

    def __init__(
        self,
        preemption_info: Any,
        drain_timed_out: bool = False,
        *,
        message: str = "the run was preempted",
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out


_CLASSES: dict[str, type[CarrilError]] = {
    "invalid-config": ConfigError,
    "no-column": NoColumnError,
    "not-available": NotAvailableError,
    "run-exists": RunExistsError,
    "run-live": RunExistsError,
    "placement-impossible": PlacementError,
    "storage": StorageError,
    "storage-refused": StorageError,
    "checkpoint": CheckpointError,
    "checkpoint-conflict": CheckpointError,
    "user-exception": UserCodeError,
    "worker-exited": WorkerDiedError,
    "worker-killed": WorkerDiedError,
    "worker-stopped": WorkerDiedError,
    "worker-start-failed": WorkerDiedError,
    "out-of-memory": WorkerDiedError,
    "hang": HangError,
    "preempted": TrainingFailedError,
    "report-mismatch": CollectiveError,
    "collective-mismatch": CollectiveError,
    "collective-lost": CollectiveError,
    "collective-timeout": CollectiveTimeoutError,
    "aborted": AbortedError,
    "head-lost": ConnectionLostError,
    "agent-lost": ConnectionLostError,
    "version-mismatch": VersionMismatchError,
    "timeout": TimedOutError,
    "bad-metrics": MetricsError,
    "not-found": NotFoundError,
    "internal": InternalError,
}


def from_failure(
    code: str, origin: str, retryable: bool, message: str, hints: Iterable[str] = (), pickled: str | None = None
) -> CarrilError:
    """The exception for a typed error of the native side. `pickled` is what the user's code raised, in digits."""
    cls = _CLASSES.get(code, InternalError)
    error = cls(message, code=code, origin=origin, retryable=retryable, hints=hints)
    if pickled is None or not isinstance(error, UserCodeError):
        return error
    try:
        from carril._internal.pickling import loads

        cause = loads(bytes.fromhex(pickled))
    except Exception:  # it cannot be made here
        return error
    return raised_as(error, cause)


def raised_as(error: UserCodeError, cause: BaseException) -> UserCodeError:
    """`error` as an exception that is of the kind of its cause as well, so that `except ValueError` catches it."""
    error.cause = cause
    try:
        return _also(type(cause), error.args, error.__dict__)
    except Exception:  # no class can be both
        return error


def _also(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> UserCodeError:
    """A `UserCodeError` that is an exception of the user's kind as well."""
    if issubclass(UserCodeError, kind):
        return _restore(UserCodeError, args, state)  # type: ignore[return-value]
    members = {
        "__module__": __name__,
        "__new__": kind.__new__,
        "__reduce__": lambda error: (_also, (kind, error.args, error.__dict__)),
    }
    both = type(f"UserCodeError({kind.__name__})", (UserCodeError, kind), members)
    return _restore(both, args, state)  # type: ignore[return-value]


def kind_of(value: object) -> str:
    """The type of a value as the messages name it: "an int", "a dict"."""
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """The name of a type with "a" or "an" before it."""
    # A "u" that begins the name of a type is mostly spoken as "you": a UserDict, a uint8.
    article = "an" if name.lstrip("_").lower().startswith(("a", "e", "i", "o")) else "a"
    return f"{article} {name}"
