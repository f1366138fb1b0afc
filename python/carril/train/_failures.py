"""From what the head tells of a failed run to the exception that `fit()` raises.

The text begins with the first cause: the rank, the user's exception, the user's line. That rank's traceback follows,
then the other ranks, equal failures together. The exceptions themselves come back as the user's own objects.
"""

import re
from typing import Any

from carril.exceptions import (
    CarrilError,
    ControllerError,
    PreemptionError,
    TrainingFailedError,
    UserCodeError,
    WorkerDiedError,
    WorkerGroupError,
    from_failure,
)

_RANKS_IN_A_LINE = 8


def worker_exceptions(failures: list[dict[str, Any]]) -> dict[int, BaseException]:
    """Each rank's own exception, or one that stands for it."""
    return {failure["rank"]: _exception(failure) for failure in failures}


def _exception(failure: dict[str, Any]) -> BaseException:
    if failure.get("exception"):
        from carril._internal.pickling import loads

        try:
            error = loads(failure["exception"])
            if isinstance(error, BaseException):
                return error
        except Exception:
            # Its class lives in a module that only the workers have: the text below tells as much.
            pass
    error = from_failure(
        failure["code"], failure["origin"], failure["retryable"], _sentence(failure), failure.get("hints") or ()
    )
    if isinstance(error, UserCodeError):
        error.traceback = failure.get("traceback") or ""
    elif isinstance(error, WorkerDiedError):
        error.exit_code = failure.get("exit_code")
        error.signal = failure.get("signal")
    return error


def _sentence(failure: dict[str, Any]) -> str:
    kind, message = failure.get("exception_type") or "", failure.get("message") or ""
    return f"{kind}: {message}" if kind and message else kind or message


def headline(ended: dict[str, Any]) -> str:
    """Who failed, with what and where, in one line."""
    if not ended["failures"]:
        return _first_line(ended["headline"] or ended["status"])
    first = ended["failures"][0]
    place = f" at {first['location']}" if first.get("location") else ""
    return f"rank {first['rank']}: {_first_line(_sentence(first))}{place}"


def group_error(ended: dict[str, Any], alone: str = "") -> CarrilError:
    """The exception for a run that has ended badly, with the user's own one as its cause.

    `alone` is what the only worker is called where nobody asked for ranks.
    """
    failures = ended["failures"]
    failure = ended["failure"] or {}
    if ended["status"] == "preempted":
        from carril.train._preemption import every_rank

        return PreemptionError(
            every_rank(len(ended["ranks"])),
            ended["timed_out"],
            message=failure.get("message") or ended["headline"],
            code="preempted",
            origin="preemption",
            retryable=True,
            hints=failure.get("hints") or (),
        )
    if not failures:
        cause = from_failure(
            failure.get("code", "internal"),
            failure.get("origin", "carril"),
            failure.get("retryable", False),
            failure.get("message") or ended["headline"] or "the run failed",
            failure.get("hints") or (),
        )
        return cause if isinstance(cause, TrainingFailedError) else controller_error(cause)
    first = failures[0]
    exceptions = worker_exceptions(failures)
    error = WorkerGroupError(
        _text(failures, alone),
        exceptions,
        code=first["code"],
        origin=first["origin"],
        retryable=first["retryable"],
        hints=first.get("hints") or (),
    )
    error.__cause__ = exceptions[first["rank"]]
    return error


def controller_error(cause: Exception) -> ControllerError:
    """The exception for a run that something beside one worker has ended."""
    error = ControllerError(cause)
    error.__cause__ = cause
    return error


def _text(failures: list[dict[str, Any]], alone: str) -> str:
    first, *others = failures
    who = alone or f"rank {first['rank']}"
    lines = [f"{who} failed: {_sentence(first)}"]
    if first.get("location"):
        lines.append(f"  at {first['location']}")
    if first.get("traceback"):
        title = "its last output:" if not first.get("exception_type") else ""
        lines.extend(["", *([title] if title else []), first["traceback"].rstrip("\n")])
    groups: dict[str, list[dict[str, Any]]] = {}
    for other in others:
        groups.setdefault(_alike(other), []).append(other)
    if groups:
        lines.append("")
    for key, group in groups.items():
        who = _ranks([failure["rank"] for failure in group])
        if key == _alike(first):
            lines.append(f"{who} failed in the same way")
        else:
            place = f" at {group[0]['location']}" if group[0].get("location") else ""
            lines.append(f"{who} failed: {_first_line(_sentence(group[0]))}{place}")
    return "\n".join(lines)


def _alike(failure: dict[str, Any]) -> str:
    """Equal for failures that differ only in numbers: ranks, sizes, addresses."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", f"{_sentence(failure)} {failure.get('location') or ''}")


def _first_line(text: str) -> str:
    line, _, rest = text.partition("\n")
    return f"{line} …" if rest else line


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(str(rank) for rank in ranks[:_RANKS_IN_A_LINE])
    more = len(ranks) - _RANKS_IN_A_LINE
    return f"ranks {shown} and {more} more" if more > 0 else f"ranks {shown}"
