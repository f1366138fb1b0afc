"""The base for loggers: callbacks that write down what each trial does."""

from typing import TYPE_CHECKING, Any

from carril.tune.callback import Callback

if TYPE_CHECKING:
    from carril.tune.schedulers._trial import Trial


class LoggerCallback(Callback):
    """To be derived from: a callback in fewer words. Every method does nothing by default."""

    def log_trial_start(self, trial: "Trial") -> None:
        """A trial has been started, or goes on."""

    def log_trial_restore(self, trial: "Trial") -> None:
        """A trial goes on from a checkpoint."""

    def log_trial_save(self, trial: "Trial") -> None:
        """A trial has saved a checkpoint."""

    def log_trial_result(self, iteration: int, trial: "Trial", result: dict[str, Any]) -> None:
        """A trial has reported."""

    def log_trial_end(self, trial: "Trial", failed: bool = False) -> None:
        """A trial has ended."""

    def on_trial_start(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(
        self, iteration: int, trials: "list[Trial]", trial: "Trial", result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: "list[Trial]", trial: "Trial", **info: Any) -> None:
        self.log_trial_end(trial, failed=True)
