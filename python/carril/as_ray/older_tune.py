"""What only the older generation of `ray.tune` called inside a trial: metrics by keyword, and `checkpoint_dir`.

A directory that a script has filled within `with tune.checkpoint_dir(step)` is the checkpoint of the next report.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from carril import tune as _tune

if TYPE_CHECKING:
    from carril.tune import Checkpoint

# The checkpoint that waits for its report, by the trial that made it: a process may serve one trial after the other.
_filled: "dict[str | None, Checkpoint]" = {}


def report(_metric: Any = None, *, checkpoint: "Checkpoint | None" = None, **metrics: Any) -> None:
    """`carril.tune.report`, which takes a dict; the older generation gave each metric by keyword, or a single number."""
    if checkpoint is None and _filled:
        checkpoint = _filled.pop(get_trial_id(), None)
    # The dict of today's generation was called `metrics`.
    given = metrics.pop("metrics") if _metric is None and isinstance(metrics.get("metrics"), dict) else _metric
    if given is not None and not isinstance(given, dict):
        given = {"_metric": given}
    _tune.report({**given, **metrics} if given is not None else metrics, checkpoint=checkpoint)


@contextmanager
def checkpoint_dir(step: int) -> Iterator[str]:
    """A directory to fill. It is reported with the metrics that come next."""
    from carril.train._checkpoint import Checkpoint

    checkpoint = Checkpoint._temporary()
    yield checkpoint.path
    _filled.clear()
    _filled[get_trial_id()] = checkpoint


def is_session_enabled() -> bool:
    """True inside a trial."""
    from carril.tune._session import in_trial

    return in_trial()


def get_trial_id() -> str | None:
    return _tune.get_context().get_trial_id() if is_session_enabled() else None


def get_trial_name() -> str | None:
    return _tune.get_context().get_trial_name() if is_session_enabled() else None


def get_trial_dir() -> str | None:
    return _tune.get_context().get_trial_dir() if is_session_enabled() else None


def get_trial_resources() -> Any:
    return _tune.get_context().get_trial_resources() if is_session_enabled() else None
