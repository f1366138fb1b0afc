"""What a user's own scheduler, searcher or callback sees of trials: plain data that the driver fills.

Changing them changes nothing in the experiment: a scheduler decides by what it returns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(eq=False)
class Trial:
    """One trial, as it is at the time of the call. `status` is one of the constants below."""

    PENDING: ClassVar[str] = "PENDING"
    RUNNING: ClassVar[str] = "RUNNING"
    PAUSED: ClassVar[str] = "PAUSED"
    TERMINATED: ClassVar[str] = "TERMINATED"
    ERROR: ClassVar[str] = "ERROR"

    trial_id: str
    config: dict[str, Any] = field(default_factory=dict)
    status: str = PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    # The values that were drawn for this trial, by flattened name.
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    checkpoint: Any = None
    trainable_name: str = ""
    # The trial's own directory.
    local_path: str | None = None
    resources: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    # From `trial_name_creator`.
    custom_trial_name: str | None = None

    @property
    def trial_name(self) -> str:
        if self.custom_trial_name is not None:
            return self.custom_trial_name
        return f"{self.trainable_name}_{self.trial_id}" if self.trainable_name else self.trial_id

    @property
    def logdir(self) -> str | None:
        """The older name of `local_path`."""
        return self.local_path

    @property
    def path(self) -> str | None:
        """The newer name of `local_path`."""
        return self.local_path

    def is_finished(self) -> bool:
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def __str__(self) -> str:
        return self.trial_name


class Controller:
    """All trials of an experiment, for a scheduler that looks at more than the one it is asked about."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}

    def add(self, trial: Trial) -> None:
        """For the driver: a trial was made."""
        self._trials[trial.trial_id] = trial

    def get_trial(self, trial_id: str) -> Trial | None:
        return self._trials.get(trial_id)

    def get_trials(self) -> list[Trial]:
        return list(self._trials.values())

    def get_live_trials(self) -> list[Trial]:
        """Those that have not ended."""
        return [trial for trial in self._trials.values() if not trial.is_finished()]
