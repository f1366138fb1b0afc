"""A trial that runs a trainer: its reports become those of the trial."""

from typing import TYPE_CHECKING, Any

from carril.train._callbacks import UserCallback

if TYPE_CHECKING:
    from carril.train._callbacks import RunContext
    from carril.train._checkpoint import Checkpoint


class TuneReportCallback(UserCallback):
    """For `RunConfig(callbacks=[…])` of a trainer inside a trial: forwards what rank 0 reports.

    A report with a checkpoint has its path under `checkpoint_path`. Where the trial is to stop, the run ends.
    """

    def __init__(self) -> None:
        if not _is_in_a_trial():
            raise RuntimeError(
                "`TuneReportCallback` was made outside a trial\n"
                "hint: make it in the function that is given to the `Tuner`, beside the trainer"
            )

    def after_report(
        self, run_context: "RunContext", metrics: list[dict[str, Any]], checkpoint: "Checkpoint | None"
    ) -> None:
        from carril.tune import report  # type: ignore[attr-defined,unused-ignore]

        path = {} if checkpoint is None else {"checkpoint_path": checkpoint.path}
        report({**metrics[0], **path})


def _is_in_a_trial() -> bool:
    from carril.tune import _session

    try:
        return _session.trial_info() is not None
    except RuntimeError:
        return False
