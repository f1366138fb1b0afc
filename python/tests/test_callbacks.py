"""The user's callbacks: which are called when, with what, in which process, and what an exception in one does."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from runs import fit, lines

from carril.train import (
    Checkpoint,
    ControllerError,
    Result,
    RunContext,
    UserCallback,
    WorkerGroupError,
)

pytestmark = pytest.mark.usefixtures("head")

COUNT = 50_000 if os.environ.get("CARRIL_LONG") else 5_000


class Recorder(UserCallback):
    """Keeps every call in order; raises in the one it is told to."""

    def __init__(self, fails_in: str = "", calls: list[tuple[str, Any]] | None = None) -> None:
        self.calls: list[tuple[str, Any]] = [] if calls is None else calls
        self.contexts: list[RunContext] = []
        self.fails_in = fails_in

    def _note(self, name: str, run_context: RunContext, value: Any) -> None:
        self.calls.append((name, value))
        self.contexts.append(run_context)
        assert threading.current_thread() is threading.main_thread()
        if name == self.fails_in:
            raise LookupError(f"in {name}")

    def on_start(self, run_context: RunContext) -> None:
        self._note("on_start", run_context, None)

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        self._note("after_report", run_context, (metrics, checkpoint))

    def on_checkpoint(self, run_context: RunContext, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._note("on_checkpoint", run_context, (checkpoint, metrics))

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, BaseException]) -> None:
        self._note("after_exception", run_context, worker_exceptions)

    def on_end(self, run_context: RunContext, result: Result) -> None:
        self._note("on_end", run_context, result)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def test_callbacks_come_in_order_with_what_every_rank_reported(storage: Path) -> None:
    def function(config: dict[str, Any]) -> str:
        from carril import train

        class Own:
            def __init__(self, rank: int) -> None:
                self.rank = rank

        rank = train.get_context().get_world_rank()
        train.report({"rank": rank, "own": Own(rank)})
        train.report({"rank": rank}, checkpoint=train.Checkpoint.from_dict({"a": 1}) if rank == 0 else None)
        return "value"

    recorder = Recorder()
    result = fit(function, storage, config={"lr": 1}, callbacks=[recorder], name="order")
    assert recorder.names == ["on_start", "after_report", "after_report", "on_checkpoint", "on_end"]
    first, no_checkpoint = recorder.calls[1][1]
    assert [metrics["rank"] for metrics in first] == [0, 1] == [metrics["own"].rank for metrics in first]
    assert no_checkpoint is None
    second, checkpoint = recorder.calls[2][1]
    assert [metrics["rank"] for metrics in second] == [0, 1] and checkpoint.to_dict() == {"a": 1}
    kept, metrics = recorder.calls[3][1]
    assert kept.path == checkpoint.path == str(storage / "order" / "checkpoint_000000")
    assert metrics["rank"] == 0 and metrics["training_iteration"] == 2
    at_end = recorder.calls[4][1]
    assert at_end.metrics == result.metrics and at_end.error is None and at_end.return_value == "value"


def test_the_context_says_which_run_it_is(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None: ...

    recorder = Recorder()
    result = fit(function, storage, workers=2, config={"lr": 1}, callbacks=[recorder], name="which")
    assert len({id(context) for context in recorder.contexts}) == 1
    context = recorder.contexts[0]
    assert (context.name, context.path) == ("which", result.path)
    assert context.get_run_config() is context.run_config and context.run_config.name == "which"
    assert context.scaling_config.num_workers == 2 and context.train_loop_config == {"lr": 1}
    assert context.backend_config is None and context.dataset_config is None
    import json

    assert context.run_id == json.loads((storage / "which" / "run.json").read_text())["run_id"]


def test_several_callbacks_are_called_in_the_order_they_were_given(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"a": 1})

    class Named(UserCallback):
        def __init__(self, name: str) -> None:
            self.name = name

        def after_report(self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            called.append(self.name)

    called: list[str] = []
    fit(function, storage, workers=1, callbacks=[Named("one"), Named("two")])
    assert called == ["one", "two"]


def test_a_slow_callback_gets_every_report_in_order(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        from carril import train

        for step in range(config["count"]):
            train.report({"step": step})

    class Slow(UserCallback):
        def __init__(self) -> None:
            self.steps: list[list[int]] = []

        def after_report(self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            self.steps.append([metrics_of_rank["step"] for metrics_of_rank in metrics])
            if len(self.steps) % 1_000 == 0:
                threading.Event().wait(0.1)

    slow = Slow()
    fit(function, storage, config={"count": COUNT}, callbacks=[slow])
    assert slow.steps == [[step, step] for step in range(COUNT)]


def test_a_failure_is_told_with_the_user_s_own_exceptions_and_then_the_end(storage: Path) -> None:
    class Own(Exception):
        pass

    def function() -> None:
        from carril import train

        train.report({"step": 0})
        raise Own("of the user", 42)

    recorder = Recorder()
    with pytest.raises(WorkerGroupError) as caught:
        fit(function, storage, workers=1, callbacks=[recorder])
    assert recorder.names == ["on_start", "after_report", "after_exception", "on_end"]
    told = recorder.calls[2][1]
    assert list(told) == [0] and type(told[0]) is Own and told[0].args == ("of the user", 42)
    result = recorder.calls[3][1]
    assert result.error is caught.value and result.metrics["step"] == 0


@pytest.mark.parametrize("where", ["on_start", "after_report", "on_checkpoint", "on_end"])
def test_an_exception_in_a_callback_ends_the_run_and_is_what_fit_raises(storage: Path, where: str) -> None:
    def function() -> None:
        import time

        from carril import train

        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        if train.get_context().get_trial_name() != "on_end":
            time.sleep(60)

    recorder = Recorder(fails_in=where)
    with pytest.raises(ControllerError) as caught:
        fit(function, storage, workers=1, callbacks=[recorder], name=where)
    error = caught.value
    assert isinstance(error.controller_failure, LookupError) and error.__cause__ is error.controller_failure
    assert str(error).startswith("the run was ended by LookupError: ") and f"in {where}" in str(error)
    assert recorder.names[-1] == where, "nothing is called after the one that failed"
    expected = "finished" if where == "on_end" else "aborted"
    import json

    assert json.loads((storage / where / "run.json").read_text())["status"] == expected
    if where != "on_start":
        assert [row["step"] for row in lines(storage / where / "result.json")] == [0]


@pytest.mark.parametrize("where", ["after_exception", "on_end"])
def test_when_the_run_failed_a_callback_that_fails_at_the_news_does_not_take_its_place(
    storage: Path, where: str
) -> None:
    def function() -> None:
        raise ValueError("the first cause")

    recorder = Recorder(fails_in=where)
    with pytest.raises(WorkerGroupError, match="ValueError: the first cause") as caught:
        fit(function, storage, workers=1, callbacks=[recorder])
    assert recorder.names[-1] == where
    if where == "after_exception":
        assert caught.value.__notes__ == ["a callback failed as well: LookupError: in after_exception"]
