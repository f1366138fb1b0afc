"""Searches whose storage goes and comes back (KEEP-1), or takes nothing (KEEP-2); and a runtime directory that somebody removes.

How a disk is made full is said in `test_full_disk.py`.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import fit, lines

import carril
from carril import tune
from carril._internal import driver
from carril.exceptions import StorageError
from carril.train import ControllerError, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune._stored import read_experiment

# The first of three reports may have been stored.
TAKEN_IN = re.compile(r"[23] reports that could not be stored before were taken in from `.*/carril-rescued-")


@pytest.fixture
def own_head(light_heads: None) -> Iterator[None]:
    """A head of the test's own, which may be damaged."""
    carril.shutdown()
    yield
    carril.shutdown()


def search(storage: Path, train: Callable[..., Any], trials: int, **config: Any) -> Any:
    """Trials that run one after the other."""
    return Tuner(
        train,
        param_space={"x": tune.grid_search(list(range(trials))), "search": str(storage / "search"), **config},
        tune_config=TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=RunConfig(name="search", storage_path=storage),
    ).fit()


def steps(storage: Path) -> dict[int, list[int]]:
    """What each trial has in its own file, by its `x`."""
    found = {}
    for results in storage.glob("search/*/result.json"):
        rows = lines(results)
        found[json.loads((results.parent / "params.json").read_text())["x"]] = [row["step"] for row in rows]
    return found


@pytest.mark.usefixtures("own_head")
def test_trials_that_end_while_the_storage_is_away_have_their_files_when_it_comes_back(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        import os
        import time

        from carril import tune

        place, away = config["search"], config["search"] + ".away"
        print(f"output of {config['x']}", flush=True)
        tune.report({"loss": 1.0, "step": 0})
        if config["x"] == 1:
            os.rename(place, away)
        tune.report({"loss": 1.0, "step": 1})
        deadline = time.monotonic() + 60
        while config["x"] == 3 and os.path.exists(away):
            try:
                os.rename(place, f"{place}.made-{time.monotonic_ns()}")
                os.rename(away, place)
            except OSError:  # the head has just made it again
                assert time.monotonic() < deadline
        tune.report({"loss": 1.0, "step": 2})

    grid = search(storage, train, trials=5)
    for made in storage.glob("search.made-*"):
        shutil.rmtree(made)
    assert len(grid) == 5 and not grid.errors
    assert steps(storage) == {x: [0, 1, 2] for x in range(5)}
    for trial in read_experiment(str(storage / "search")).trials:
        place = storage / "search" / trial.directory
        assert trial.is_over and json.loads((place / "run.json").read_text())["status"] == "finished"
        assert len((place / "progress.csv").read_text().splitlines()) == 4
        (log,) = place.glob("ranks/*.log")
        assert log.read_text() == f"output of {trial.config['x']}\n"
    assert json.loads((storage / "search" / "experiment.json").read_text())["status"] == "finished"
    assert "was moved, removed or unmounted while the search was going on" in capsys.readouterr().out


@pytest.fixture
def full(storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_head: None) -> Path:
    """While this file exists, nothing can be written to the storage. A second is as long as that is borne."""
    flag = storage / "full"
    monkeypatch.setenv("CARRIL_FAULT", f"full:{flag}:{tmp_path / 'refused'}")
    monkeypatch.setenv("CARRIL_FAULT_DEADLINE", "1")
    return flag


def test_a_search_on_a_disk_that_stays_full_ends_with_that_and_resumes_without_a_loss(
    storage: Path, tmp_path: Path, full: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        from carril import tune

        with open(config["starts"], "a") as file:
            file.write(f"{config['x']}\n")
        for step in range(3):
            if step == 1 and config["x"] == 2:
                open(config["full"], "w").close()
            tune.report({"loss": 1.0, "step": step})

    starts = tmp_path / "starts"
    config = {"trials": 6, "starts": str(starts), "full": str(full)}
    with pytest.raises(StorageError, match=r"refused everything for 1 s: .*no space left") as caught:
        search(storage, train, **config)
    assert str(storage / "search") in str(caught.value) and caught.value.origin == "infrastructure"
    assert any("carril-rescued-" in hint for hint in caught.value.hints), caught.value.hints
    assert starts.read_text().split() == ["0", "1", "2"]
    full.unlink()
    capsys.readouterr()
    grid = search(storage, train, **config)
    assert len(grid) == 6 and not grid.errors
    assert steps(storage) == {x: [0, 1, 2] for x in range(6)}
    assert TAKEN_IN.search(capsys.readouterr().out)
    assert starts.read_text().split() == ["0", "1", "2", "3", "4", "5"], "what had returned is not run again"


def test_trials_that_could_not_begin_on_a_full_disk_are_not_failures(storage: Path, full: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        from carril import tune

        tune.report({"loss": 1.0, "step": 0})
        if config["x"] == 0:
            open(config["full"], "w").close()

    with pytest.raises(StorageError, match="refused everything"):
        search(storage, train, trials=9, full=str(full))
    trials = read_experiment(str(storage / "search")).trials
    assert not [trial for trial in trials if trial.error], "no trial has failed"
    full.unlink()
    # The first one returned, and fills the disk no more.
    grid = search(storage, train, trials=9, full=str(full))
    assert len(grid) == 9 and not grid.errors
    assert steps(storage) == {x: [0] for x in range(9)}


def test_a_start_that_a_full_disk_has_refused_is_in_nobodys_way(storage: Path, full: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": 1.0}

    def function(config: dict[str, Any]) -> None: ...

    full.touch()
    for start in (lambda: search(storage, train, trials=2), lambda: fit(function, storage, workers=1, name="run")):
        with pytest.raises(StorageError, match="no space left"):
            start()
    full.unlink()
    assert len(search(storage, train, trials=2)) == 2
    fit(function, storage, workers=1, name="run")


def test_a_disk_that_is_full_for_a_moment_costs_a_search_nothing(storage: Path, tmp_path: Path, full: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        import os
        import threading
        import time

        from carril import tune

        def relieve() -> None:
            while not os.path.exists(config["log"]) or not os.path.getsize(config["log"]):
                time.sleep(0.01)
            os.remove(config["full"])

        tune.report({"loss": 1.0, "step": 0})
        if config["x"] == 1:
            open(config["full"], "w").close()
            thread = threading.Thread(target=relieve)
            thread.start()
            tune.report({"loss": 1.0, "step": 1})
            thread.join()

    grid = search(storage, train, trials=5, full=str(full), log=str(tmp_path / "refused"))
    assert len(grid) == 5 and not grid.errors
    assert steps(storage) == {x: [0, 1] if x == 1 else [0] for x in range(5)}


def test_what_a_run_could_not_store_is_taken_in_by_the_next_fit(
    storage: Path, full: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def function(config: dict[str, Any]) -> None:
        from carril import train

        for step in range(3):
            if step == 1 and config["fills"]:
                open(config["full"], "w").close()
            train.report({"step": step})

    config = {"full": str(full), "fills": True}
    with pytest.raises(ControllerError, match="cannot be written for 1 s") as caught:
        fit(function, storage, workers=1, config=config, name="run")
    assert any("carril-rescued-run-" in hint for hint in caught.value.hints)
    full.unlink()
    fit(function, storage, workers=1, config={**config, "fills": False}, name="run")
    assert [row["step"] for row in lines(storage / "run" / "result.json")] == [0, 1, 2, 0, 1, 2]
    assert len((storage / "run" / "progress.csv").read_text().splitlines()) == 7
    assert TAKEN_IN.search(capsys.readouterr().out)


REMOVED = r"the runtime directory `.*` was removed while it was in use"


@pytest.mark.usefixtures("own_head")
def test_a_runtime_directory_that_is_removed_ends_a_run_which_the_next_fit_resumes(storage: Path) -> None:
    def function(config: dict[str, Any]) -> int:
        import os
        import shutil
        import time

        from carril import train

        latest = train.get_checkpoint()
        if latest is not None:
            return int(latest.to_dict()["step"])
        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"step": 7}))
        assert train.get_checkpoint() is not None  # it is stored
        if train.get_context().get_world_rank() == 0:
            shutil.rmtree(config["directory"], ignore_errors=True)
        while os.getppid() > 1:
            time.sleep(0.01)
        return -1

    carril.init(num_cpus=2)
    config = {"directory": driver.ensure_client().directory}
    with pytest.raises(ControllerError, match=REMOVED):
        fit(function, storage, workers=2, config=config, name="run")
    assert [row["step"] for row in lines(storage / "run" / "result.json")] == [0]
    assert json.loads((storage / "run" / "run.json").read_text())["status"] == "failed"
    assert fit(function, storage, workers=2, config=config, name="run").return_value == 7


@pytest.mark.usefixtures("own_head")
def test_a_runtime_directory_that_is_removed_ends_a_search_which_the_next_fit_resumes(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        import os
        import shutil
        import time

        from carril import tune

        tune.report({"loss": 1.0, "step": 0})
        if config["x"] == 1 and os.path.exists(config["directory"]):
            shutil.rmtree(config["directory"], ignore_errors=True)
            while os.getppid() > 1:
                time.sleep(0.01)

    carril.init(num_cpus=2)
    directory = driver.ensure_client().directory
    with pytest.raises(StorageError, match=REMOVED):
        search(storage, train, trials=4, directory=directory)
    assert not [trial for trial in read_experiment(str(storage / "search")).trials if trial.error]
    grid = search(storage, train, trials=4, directory=directory)
    assert len(grid) == 4 and not grid.errors
