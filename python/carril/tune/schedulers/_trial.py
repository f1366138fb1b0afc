"""What a user's own scheduler, searcher or callback sees of trials: plain data that the driver fills.

Changing them changes nothing in the experiment: a scheduler decides by what it returns, and by `Controller.stop_trial`.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from carril.tune.trainable import PlacementGroupFactory


class TrialNames:
    """What every view of a trial has: the words for its state, and what it is called."""

    PENDING: ClassVar[str] = "PENDING"
    RUNNING: ClassVar[str] = "RUNNING"
    PAUSED: ClassVar[str] = "PAUSED"
    TERMINATED: ClassVar[str] = "TERMINATED"
    ERROR: ClassVar[str] = "ERROR"

    trial_id: Any
    status: Any
    checkpoint: Any
    resources: Any
    local_path: Any
    trainable_name: Any
    # From `trial_name_creator`.
    custom_trial_name: Any

    @property
    def trial_name(self) -> str:
        if self.custom_trial_name is not None:
            return str(self.custom_trial_name)
        return f"{self.trainable_name}_{self.trial_id}" if self.trainable_name else str(self.trial_id)

    @property
    def logdir(self) -> str | None:
        """The older name of `local_path`."""
        return self.local_path  # type: ignore[no-any-return]

    @property
    def path(self) -> str | None:
        """The newer name of `local_path`."""
        return self.local_path  # type: ignore[no-any-return]

    @property
    def placement_group_factory(self) -> "PlacementGroupFactory":
        """What it reserves."""
        from carril.tune.trainable import PlacementGroupFactory

        return PlacementGroupFactory([self.resources or {"CPU": 1.0}])

    def has_checkpoint(self) -> bool:
        return self.checkpoint is not None

    def is_finished(self) -> bool:
        return self.status in (TrialNames.TERMINATED, TrialNames.ERROR)

    def __str__(self) -> str:
        return self.trial_name

    __repr__ = __str__


class Trial(TrialNames):
    """One trial, as it is at the time of the call. `status` is one of the constants."""

    def __init__(
        self,
        trainable_name: str = "",
        *,
        config: dict[str, Any] | None = None,
        trial_id: str | None = None,
        evaluated_params: dict[str, Any] | None = None,
        experiment_tag: str = "",
        local_path: str | None = None,
        resources: dict[str, float] | None = None,
        custom_trial_name: str | None = None,
        placement_group_factory: "PlacementGroupFactory | None" = None,
        trial_name_creator: Callable[["Trial"], str] | None = None,
        stub: bool = False,
    ) -> None:
        self.trainable_name = trainable_name
        self.config = {} if config is None else config
        self.trial_id = _new_id() if trial_id is None else trial_id
        self.status = Trial.PENDING
        self.last_result: dict[str, Any] = {}
        # The values that were drawn for this trial, by flattened name.
        self.evaluated_params = {} if evaluated_params is None else evaluated_params
        self.experiment_tag = experiment_tag
        self.checkpoint: Any = None
        # The trial's own directory.
        self.local_path = local_path
        self.resources = {} if resources is None else resources
        if placement_group_factory is not None:
            self.resources = placement_group_factory.required_resources
        self.error: str | None = None
        self.custom_trial_name = custom_trial_name
        if trial_name_creator is not None:
            self.custom_trial_name = trial_name_creator(self)


def _new_id() -> str:
    import uuid

    return uuid.uuid4().hex[:8]


class Controller:
    """All trials of an experiment, for a scheduler that looks at more than the one it is asked about."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._orders: list[dict[str, Any]] = []
        self._removed: set[str] = set()
        # The searcher has no more trials.
        self.is_exhausted = False

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

    def stop_trial(self, trial: Trial) -> None:
        """Ends a trial, whether it runs or waits. The head hears of it with the scheduler's next answer."""
        if trial.is_finished():
            return
        if trial.status != Trial.RUNNING:
            self._removed.add(trial.trial_id)
        self.order({"trial": trial.trial_id, "verdict": "stop_early", "reason": "the scheduler stops it"})

    def order(self, order: dict[str, Any]) -> None:
        """For schedulers of ours: a decision about a trial, in the words of an answer to the head."""
        self._orders.append(order)

    def take_orders(self, trial_id: str | None = None) -> list[dict[str, Any]]:
        """For the driver: what was decided since it last asked, about all or about one."""
        taken = [order for order in self._orders if trial_id in (None, order["trial"])]
        self._orders = [order for order in self._orders if order not in taken]
        return taken

    def has_removed(self, trial: Trial) -> bool:
        """For the driver: `stop_trial` ended it while it waited."""
        return trial.trial_id in self._removed
