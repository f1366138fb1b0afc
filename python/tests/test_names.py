"""The rule for a run's name: what is live, unfinished or finished is never written over, and a name stays a name."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from runs import NO_RESTART, fit, trainer

import carril
from carril.exceptions import ConfigError, ConnectionLostError, RunExistsError


@pytest.fixture(autouse=True)
def own_head() -> Any:
    """One of these tests kills its head, so each has its own."""
    yield
    carril.shutdown()


def reports() -> Any:
    def function() -> None:
        from carril import train

        train.report({"a": 1})

    return function


def _snapshot(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_name_of_its_own_is_made_up_and_never_twice_the_same(storage: Path) -> None:
    names = [Path(str(fit(reports(), storage, workers=1).path)).name for _ in range(2)]
    assert names[0] != names[1]
    for name in names:
        assert re.fullmatch(r"function_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{6}", name), name
    by_lambda = fit(lambda: None, storage, workers=1)
    assert Path(str(by_lambda.path)).name.startswith("DataParallelTrainer_")


def test_a_finished_run_is_refused_with_the_two_ways_out_and_stays_as_it_is(storage: Path) -> None:
    fit(reports(), storage, workers=1, name="done")
    before = _snapshot(storage)
    with pytest.raises(RunExistsError) as caught:
        fit(reports(), storage, workers=1, name="done")
    error = caught.value
    assert error.code == "run-exists" and error.message == f"a run named `done` has ended in `{storage / 'done'}`"
    assert len(error.hints) == 2 and "another `name`" in error.hints[0] and "resume=True" in error.hints[1]
    assert _snapshot(storage) == before
    assert fit(reports(), storage, workers=1, name="other").error is None


def test_a_failed_run_is_gone_on_with(storage: Path) -> None:
    def function() -> None:
        raise ValueError

    with pytest.raises(carril.train.WorkerGroupError):
        fit(function, storage, workers=1, name="failed")
    assert (storage / "failed" / "error.txt").exists()
    assert fit(reports(), storage, workers=1, name="failed").error is None
    assert not (storage / "failed" / "error.txt").exists()


def test_a_live_run_is_refused_and_goes_on(storage: Path) -> None:
    def function(config: dict[str, Any]) -> str:
        import os
        import time

        from carril import train

        train.report({"a": 1})
        while not os.path.exists(config["go"]):
            time.sleep(0.005)
        return "went on"

    carril.init(num_cpus=4)
    go, results = storage / "go", []
    first = trainer(function, storage, workers=1, config={"go": str(go)}, name="live")
    thread = threading.Thread(target=lambda: results.append(first.fit()))
    thread.start()
    try:
        kept = storage / "live" / "result.json"
        wait_until(lambda: kept.exists() and kept.stat().st_size > 0, "the first run has reported")
        with pytest.raises(RunExistsError, match=r"a run named `live` is live in .*: process \d+ on ") as caught:
            fit(reports(), storage, workers=1, name="live")
        assert caught.value.code == "run-live"
    finally:
        go.touch()
        thread.join()
    assert results[0].return_value == "went on"


def test_a_run_that_lost_its_head_once_too_often_is_told_and_its_name_is_gone_on_with(storage: Path) -> None:
    def function() -> None:
        import os
        import signal
        import time

        from carril import train

        train.report({"a": 1})
        if train.get_context().get_experiment_name() == "cut":
            os.kill(int(os.environ["CARRIL_AGENT_PID"]), signal.SIGKILL)
            time.sleep(60)

    with pytest.raises(ConnectionLostError, match="once too often: `max_infrastructure_failures` is 0") as caught:
        fit(function, storage, workers=2, name="cut", failure_config=NO_RESTART)
    assert caught.value.code == "head-lost" and caught.value.origin == "infrastructure"
    carril.shutdown()
    assert json.loads((storage / "cut" / "run.json").read_text())["status"] == "failed"
    assert "the head was lost" in (storage / "cut" / "error.txt").read_text()
    result = fit(reports(), storage, workers=1, name="cut")
    assert result.path == str(storage / "cut"), "the run resumes in the same directory"


def test_a_directory_of_something_else_is_not_taken_and_an_empty_one_is(storage: Path) -> None:
    (storage / "mine").mkdir()
    (storage / "mine" / "notes.txt").write_text("keep")
    (storage / "empty").mkdir()
    with pytest.raises(RunExistsError):
        fit(reports(), storage, workers=1, name="mine")
    assert _snapshot(storage) == {str(storage / "mine" / "notes.txt"): b"keep"}
    assert fit(reports(), storage, workers=1, name="empty").path == str(storage / "empty")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/x", "a\0b", ".hidden/../x"])
def test_a_name_that_is_a_path_is_refused_before_anything_is_made(storage: Path, name: str) -> None:
    if name == "":
        # An empty name is no name: one is made up.
        assert Path(str(fit(reports(), storage, workers=1, name=name).path)).name.startswith("function_")
        return
    with pytest.raises(ConfigError) as caught:
        fit(reports(), storage, workers=1, name=name)
    assert "name" in str(caught.value)
    assert list(storage.iterdir()) == []


def test_a_name_may_have_spaces_and_letters_of_any_language(storage: Path) -> None:
    assert fit(reports(), storage, workers=1, name="mi corrida ñ").path == str(storage / "mi corrida ñ")


def test_a_storage_path_may_be_relative_or_below_the_home(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(storage)
    monkeypatch.setenv("HOME", str(storage / "home"))
    assert fit(reports(), Path("here"), workers=1, name="a").path == str(storage / "here" / "a")
    assert fit(reports(), Path("~/runs"), workers=1, name="b").path == str(storage / "home" / "runs" / "b")
    by_default = carril.train.DataParallelTrainer(reports(), run_config={"name": "c"}).fit()
    assert by_default.path == str(storage / "home" / "carril_results" / "c")
    older = carril.train.DataParallelTrainer(reports(), run_config={"name": "d", "local_dir": "older"}).fit()
    assert older.path == str(storage / "older" / "d")


def test_a_storage_path_that_cannot_be_made_is_named(storage: Path) -> None:
    (storage / "file").write_text("")
    with pytest.raises(carril.exceptions.StorageError, match=f"cannot make `{re.escape(str(storage / 'file'))}"):
        fit(reports(), storage / "file", workers=1, name="a")
