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
    report,
)

pytestmark = pytest.mark.usefixtures("head")

COUNT = 50_000 if os.environ.get("CARRIL_LONG") else 5_000


class Recorder(UserCallback):
    """Keeps every call in order; raises in the one that was chosen."""

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


def test_a_callback_that_fails_when_the_run_has_finished_leaves_it_finished(
    storage: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Late(UserCallback):
        def on_end(self, run_context: object, result: object) -> None:
            raise LookupError("at the end")

    with pytest.raises(ControllerError, match="LookupError: at the end"):
        fit(lambda: report({"step": 1}), storage, workers=1, callbacks=[Late()], name="late")
    shown = capfd.readouterr().out
    assert "`late` finished: 1 report" in shown and "carril resume" not in shown
    assert Result.from_path(storage / "late").error is None


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


@pytest.mark.parametrize("ends", ["well", "with an exception", "with sys.exit(0)", "with sys.exit(3)"])
def test_without_workers_callbacks_are_called_as_with_one(storage: Path, ends: str) -> None:
    def function(config: dict[str, Any]) -> str:
        import sys

        from carril import train

        train.report({"step": 0})
        train.report({"step": 1}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        if config["ends"] == "with an exception":
            raise ValueError("of the user")
        if config["ends"] != "well":
            sys.exit(int(config["ends"][-2]))
        return "value"

    told = {}
    for workers in (0, 1):
        recorder = Recorder()
        raised: BaseException | None = None
        try:
            fit(function, storage, workers, config={"ends": ends}, callbacks=[recorder], name=f"of_{workers}")
        except (Exception, SystemExit) as error:
            raised = error
        told[workers] = recorder.names
        (first, none), (second, checkpoint) = (value for name, value in recorder.calls if name == "after_report")
        assert [one["step"] for one in first] == [0] and none is None
        assert [one["step"] for one in second] == [1] and checkpoint.to_dict() == {"a": 1}
        kept, metrics = next(value for name, value in recorder.calls if name == "on_checkpoint")
        assert kept.path == checkpoint.path and metrics["step"] == 1
        result = recorder.calls[-1][1]
        assert result.metrics["step"] == 1 and result.checkpoint.to_dict() == {"a": 1}
        if ends == "with sys.exit(0)":
            assert result.error is None
        else:
            assert result.error is raised and result.return_value == ("value" if ends == "well" else None)
        context = recorder.contexts[0]
        assert context.name == f"of_{workers}" and context.train_loop_config == {"ends": ends}
        assert context.scaling_config.num_workers == workers
    assert told[0] == told[1]
    assert ("after_exception" in told[0]) == (ends in ("with an exception", "with sys.exit(3)"))


def test_without_workers_the_exception_is_told_and_raised_as_it_is(storage: Path) -> None:
    def function() -> None:
        raise ValueError("the first cause")

    recorder = Recorder(fails_in="after_exception")
    with pytest.raises(ValueError, match="the first cause") as caught:
        fit(function, storage, workers=0, callbacks=[recorder])
    assert recorder.names == ["on_start", "after_exception"]
    assert recorder.calls[1][1] == {0: caught.value}
    assert caught.value.__notes__ == ["a callback failed as well: LookupError: in after_exception"]


@pytest.mark.parametrize("where", ["on_start", "after_report", "on_checkpoint", "on_end"])
def test_without_workers_an_exception_in_a_callback_ends_the_function(storage: Path, where: str) -> None:
    passed: list[str] = []

    def function() -> None:
        from carril import train

        try:
            train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        except Exception:
            passed.append("caught")
        passed.append("went on")

    recorder = Recorder(fails_in=where)
    with pytest.raises(ControllerError) as caught:
        fit(function, storage, workers=0, callbacks=[recorder])
    assert isinstance(caught.value.controller_failure, LookupError)
    assert caught.value.__cause__ is caught.value.controller_failure
    assert recorder.names[-1] == where, "nothing is called after the one that failed"
    assert passed == (["went on"] if where == "on_end" else [])


def test_without_workers_a_function_that_holds_on_does_not_hide_a_callback_s_failure(storage: Path) -> None:
    def function() -> None:
        from carril import train

        for step in range(3):
            try:
                train.report({"step": step})
            except BaseException as error:
                passed.append(type(error).__name__)

    passed: list[str] = []
    recorder = Recorder(fails_in="after_report")
    with pytest.raises(ControllerError, match="in after_report"):
        fit(function, storage, workers=0, callbacks=[recorder])
    assert len(passed) == 3 and recorder.names == ["on_start", "after_report"]


def test_without_workers_ctrl_c_is_told_as_the_end(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"step": 0})
        raise KeyboardInterrupt

    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(function, storage, workers=0, callbacks=[recorder])
    assert recorder.names == ["on_start", "after_report", "on_end"]
    assert recorder.calls[-1][1].error is caught.value


@pytest.mark.parametrize("rank", [0, 1])
def test_under_torchrun_rank_0_alone_tells_the_callbacks(
    storage: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": 1}
    for name, value in {"MASTER_ADDR": "127.0.0.1", **environment}.items():
        monkeypatch.setenv(name, str(value))

    def function() -> None:
        from carril import train

        train.report({"step": 0})

    recorder = Recorder()
    fit(function, storage, workers=0, callbacks=[recorder])
    assert recorder.names == (["on_start", "after_report", "on_end"] if rank == 0 else [])
