"""Callbacks of an experiment: told in the driver what its trials do.

They are called one at a time, in the order in which they were given. An exception in one ends the experiment.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carril.train._checkpoint import Checkpoint
    from carril.tune.schedulers._trial import Trial
    from carril.tune.stopper.stopper import Stopper


class Callback:
    """To be derived from. Every method does nothing by default.

    `iteration` counts the steps of the driver's loop, `trials` are all of the experiment.
    """

    def setup(
        self,
        stop: "Stopper | None" = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """The experiment begins."""

    def on_step_begin(self, iteration: int, trials: "list[Trial]", **info: Any) -> None:
        """A step of the driver's loop begins."""

    def on_step_end(self, iteration: int, trials: "list[Trial]", **info: Any) -> None:
        """A step of the driver's loop is over."""

    def on_trial_start(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        """A trial has been started."""

    def on_trial_restore(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        """A trial goes on from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        """A trial has saved a checkpoint."""

    def on_trial_result(
        self, iteration: int, trials: "list[Trial]", trial: "Trial", result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has reported."""

    def on_trial_complete(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        """A trial has ended well."""

    def on_trial_recover(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        """A trial has failed, and is started again."""

    def on_trial_error(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        """A trial has failed for good."""

    def on_checkpoint(
        self, iteration: int, trials: "list[Trial]", trial: "Trial", checkpoint: "Checkpoint", **info: Any
    ) -> None:
        """A checkpoint of a trial is stored."""

    def on_experiment_end(self, trials: "list[Trial]", **info: Any) -> None:
        """The experiment is over."""

    def get_state(self) -> dict[str, Any] | None:
        """What is to be kept with the experiment; None for nothing."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes over what `get_state` gave, when the experiment goes on."""
