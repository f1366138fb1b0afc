"""What a trial calls: `report`, `get_checkpoint`, `get_context`, and what they stand on in the worker.

A report of a trial waits for what the experiment decides about it, unless that is known beforehand. A trial that is to
stop or to pause leaves by `TrialStopped` from the very report that was decided on.
"""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril.train import _session as training
from carril.tune._values import decoded

if TYPE_CHECKING:
    from carril._native import Session
    from carril.train._checkpoint import Checkpoint
    from carril.tune._context import TuneContext

LEAVES = ("pause", "stop")


class TrialStopped(SystemExit):
    """The trial has to stop or to pause: its function ends here, and its `finally` runs."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(frozen=True)
class TrialInfo:
    """What a trial knows of itself. `iteration` and `time_total_s` are what its checkpoint has behind it."""

    id: str
    name: str
    directory: str
    experiment_name: str
    resources: dict[str, float] = field(default_factory=dict)
    iteration: int = 0
    time_total_s: float = 0.0


class TrialSession:
    """The native session of a trial's worker. What it decides about a report is what the report's caller feels."""

    def __init__(self, native: "Session", of_trainer: bool = False) -> None:
        self._native = native
        self.of_trainer = of_trainer
        # The caller asks for the verdict itself.
        self.tells = False
        self.verdict = "continue"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def context(self) -> "TuneContext":
        return get_context()

    def report(self, *arguments: Any, **options: Any) -> None:
        self.verdict = self._native.report(*arguments, **options)
        if self.verdict in LEAVES and not self.tells:
            raise TrialStopped


def begin(call: dict[str, Any], session: "Session") -> tuple[Any, tuple[Any, ...]]:
    """What a worker of a trial calls, and with what. From here on `report` means the trial's."""
    trial = session.trial
    assert trial is not None
    training.enter(TrialSession(session, "of_trainer" in call))
    config = decoded(trial["config"])
    details = call["details"]
    if "of_trainer" in call:
        from carril.tune._trainers import details_in_trial

        details = details_in_trial(details, config)
    training.set_details({**details, "resources": trial["resources"], "trial": trial})
    # A run inside the trial is the same head's, and draws on what the trial has.
    os.environ["CARRIL_HEAD"] = os.path.join(os.path.dirname(os.environ["CARRIL_AGENT"]), "head.sock")
    os.environ["CARRIL_PARENT"] = session.run_id
    if "of_trainer" in call:
        from carril.tune._trainers import arguments_in_trial

        return call["function"], arguments_in_trial(call["function"], call["of_trainer"], config)
    from carril.tune.trainable import run_trial

    return run_trial, (call["trainable"], config, call["options"])


def in_trial() -> bool:
    """True in the function or class of a trial."""
    return isinstance(training.entered(), TrialSession)


def in_function() -> bool:
    """True in a trial that is no run of a trainer's."""
    session = _current()
    return session is not None and not session.of_trainer


def _current() -> TrialSession | None:
    session = training.entered()
    return session if isinstance(session, TrialSession) else None


def trial_info() -> TrialInfo | None:
    """What the trial knows of itself; None outside of one."""
    session = _current()
    if session is None:
        return None
    trial: dict[str, Any] = training.details()["trial"]
    experiment = str(training.details().get("experiment_name", ""))
    return TrialInfo(
        id=trial["id"],
        name=f"{training.details().get('trainable_name', 'trial')}_{trial['id']}",
        directory=session.run_directory,
        experiment_name=experiment,
        resources=dict(trial["resources"]),
        iteration=trial["iteration"],
        time_total_s=trial["seconds"],
    )


def report_trial(metrics: dict[str, Any], checkpoint: "Checkpoint | None" = None, *, silent: bool = False) -> str:
    """Reports, and tells what becomes of the trial: "continue", "save", "pause" or "stop".

    With `silent` only the checkpoint is stored: the report has no line in the files and is not decided on.
    """
    session = _current()
    if session is None:
        raise RuntimeError("a result was reported outside of a trial")
    if silent:
        assert checkpoint is not None
        with checkpoint.as_directory() as directory:
            session._native.report(dict(metrics), directory, silent=True)
        return "continue"
    session.tells = True
    try:
        training.report(metrics, checkpoint)
    finally:
        session.tells = False
    return session.verdict


def latest_checkpoint() -> "Checkpoint | None":
    """What the trial goes on from; None where it begins."""
    return training.get_checkpoint()


def report(metrics: dict[str, Any], *, checkpoint: "Checkpoint | None" = None) -> None:
    """Reports a result of this trial, and with it a checkpoint. Returns when it is decided that the trial goes on.

    Outside of a trial it does nothing, with one warning: the same function can be called without a search.
    """
    if not training.is_running():
        _warn_once("report()")
        return
    training.report(metrics, checkpoint)


def get_checkpoint() -> "Checkpoint | None":
    """The newest checkpoint of this trial, or of the one that it goes on from; None where it begins."""
    if not training.is_running():
        _warn_once("get_checkpoint()")
        return None
    return training.get_checkpoint()


def get_context() -> "TuneContext":
    """Who this trial is: id, name, directory, resources."""
    from carril.tune._context import TuneContext

    return TuneContext()


_warned: set[str] = set()


def _warn_once(name: str) -> None:
    if name in _warned:
        return
    _warned.add(name)
    import warnings

    warnings.warn(f"`tune.{name}` was called outside of a trial: it does nothing there", stacklevel=3)
