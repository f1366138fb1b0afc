"""Searches that lose their head or their driver, and go on."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401

import carril
from carril import tune
from carril._internal import driver
from carril.exceptions import ConfigError
from carril.train import Checkpoint, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune._stored import read_experiment
from carril.tune.search import ConcurrencyLimiter, Repeater
from carril.tune.search.hyperopt import HyperOptSearch
from carril.tune.search.optuna import OptunaSearch


@pytest.fixture
def own_head() -> Iterator[None]:
    """A head that may be killed."""
    carril.shutdown()
    carril.init(num_cpus=2)
    yield
    carril.shutdown()


def search(storage: Path, trainable: Any, space: dict[str, Any], **options: Any) -> Any:
    return Tuner(
        trainable,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", **options),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=0),
    ).fit()


@pytest.mark.usefixtures("own_head")
def test_the_head_may_die_and_the_search_goes_on(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        for step in range(first, 4):
            if config["x"] == 1 and step == 2:
                Path(config["mark"]).touch()
                while not os.path.exists(config["go"]):
                    time.sleep(0.01)
            tune.report({"loss": config["x"], "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))

    mark, go = storage / "mark", storage / "go"
    pid = driver.ensure_client().head_pid

    def kill() -> None:
        while not mark.exists() or len(list(storage.glob("search/*_00001_*/checkpoint_*/.manifest.json"))) < 2:
            time.sleep(0.01)
        os.kill(pid, 9)
        go.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    space = {"x": tune.grid_search([0, 1, 2]), "mark": str(mark), "go": str(go)}
    grid = search(storage, train, space, max_concurrent_trials=1)
    killer.join()
    assert not grid.errors, grid.errors
    assert [result.metrics["training_iteration"] for result in grid] == [4, 4, 4]
    assert grid[1].metrics["first"] == 2


SCRIPT = """
import os, sys, time
from carril import tune
from carril.train import Checkpoint
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune.schedulers import ASHAScheduler

def train(config):
    with open({notes!r}, "a") as notes:
        notes.write(f"{{config['x']}}\\n")
    latest = tune.get_checkpoint()
    first = latest.to_dict()["step"] + 1 if latest is not None else 0
    for step in range(first, 5):
        time.sleep(0.01)
        tune.report({{"loss": config["x"] / (step + 1), "first": first}}, checkpoint=Checkpoint.from_dict({{"step": step}}))

if __name__ == "__main__":
    grid = Tuner(
        train,
        param_space={{"x": tune.uniform(0, 1)}},
        tune_config=TuneConfig(
            metric="loss", mode="min", num_samples=12, scheduler=ASHAScheduler(max_t=5, reduction_factor=2)
        ),
        run_config=RunConfig(name="search", storage_path={storage!r}, verbose=0),
    ).fit()
    print("trials", len(grid), "errors", grid.num_errors, flush=True)
"""


@pytest.mark.parametrize("ended", [0, 1, 3, 6, 9])
def test_a_driver_that_is_killed_at_any_point_goes_on_by_the_same_script(
    scripts: Scripts, tmp_path: Path, ended: int
) -> None:
    storage, notes = tmp_path / "storage", tmp_path / "notes"
    text = SCRIPT.format(notes=str(notes), storage=str(storage))
    first = scripts.start(text)
    path = storage / "search"

    def over() -> int:
        if not (path / "trials.jsonl").exists():
            return -1
        return sum('"event": "ended"' in line for line in (path / "trials.jsonl").read_text().splitlines())

    wait_until(lambda: over() >= ended, f"{ended} trials have ended")
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    before = {trial.id: trial for trial in read_experiment(path).trials if trial.is_over}
    runs_before = notes.read_text().split() if notes.exists() else []
    output = scripts.run(text)
    assert "trials 12 errors 0" in output, output
    after = read_experiment(path)
    assert after.record["status"] == "finished" and all(trial.is_over for trial in after.trials)
    for trial in after.trials:
        if trial.id in before:
            assert trial.metrics == before[trial.id].metrics, "what has ended is left alone"
    again = notes.read_text().split()[len(runs_before) :]
    assert not {str(trial.config["x"]) for trial in before.values()} & set(again), "and is not run again"


REMEMBERS = """
import os, sys
from carril import tune
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune.search import Searcher

class Records(Searcher):
    def __init__(self):
        super().__init__()
        self.suggested, self.ended = [], []

    def suggest(self, trial_id):
        self.suggested.append(trial_id)
        return {{"x": len(self.suggested)}}

    def on_trial_complete(self, trial_id, result=None, error=False):
        assert trial_id in self.suggested, (trial_id, self.suggested)
        self.ended.append(trial_id)

    def add_evaluated_point(self, parameters, value, error=False, pruned=False, intermediate_values=None):
        # Suggested after the state was saved: its config is all that is known of it.
        self.ended.append(parameters["x"])

def train(config):
    # The others are under way when the driver is killed.
    while config["x"] > {ended} and not os.path.exists({go!r}):
        os.sched_yield()
    tune.report({{"loss": 1.0}})

if __name__ == "__main__":
    searcher = Records()
    Tuner(
        train,
        tune_config=TuneConfig(metric="loss", mode="min", num_samples=8, search_alg=searcher, max_concurrent_trials=2),
        run_config=RunConfig(name="search", storage_path={storage!r}, verbose=0),
    ).fit()
    print("heard", len(searcher.ended), flush=True)
"""


@pytest.mark.parametrize("ended", [1, 4])
def test_a_searcher_of_the_users_hears_of_every_trial_once_though_its_driver_was_killed(
    scripts: Scripts, tmp_path: Path, ended: int
) -> None:
    storage = tmp_path / "storage"
    go = tmp_path / "go"
    text = REMEMBERS.format(storage=str(storage), ended=ended, go=str(go))
    first = scripts.start(text)
    records = storage / "search" / "trials.jsonl"
    wait_until(
        lambda: records.exists() and records.read_text().count('"event": "ended"') >= ended,
        f"{ended} trials have ended",
    )
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    assert records.read_text().count('"event": "ended"') == ended, "it was killed in the middle"
    go.touch()
    assert "heard 8" in scripts.run(text)


@pytest.mark.usefixtures("head")
def test_a_trial_that_failed_may_go_on_or_begin_anew(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        tune.report({"loss": 1.0, "first": first}, checkpoint=Checkpoint.from_dict({"step": first}))
        if not os.path.exists(config["go"]):
            raise ValueError("not yet")

    for restart in (False, True):
        place, go = storage / f"restart_{restart}", storage / f"go_{restart}"
        grid = search(place, train, {"go": str(go)})
        assert grid.num_errors == 1
        go.touch()
        tuner = Tuner.restore(
            str(place / "search"),
            train,
            resume_errored=not restart,
            restart_errored=restart,
            run_config=RunConfig(verbose=0),
        )
        grid = tuner.fit()
        assert grid.num_errors == 0 and len(grid) == 1
        assert grid[0].metrics["first"] == (0 if restart else 1)


def squared(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": config["x"] ** 2}


class Stops(tune.Callback):
    """Ends the driver's part when the second trial has ended."""

    def __init__(self) -> None:
        self.ended = 0

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.ended += 1
        if self.ended == 2:
            raise TimeoutError("the machine is needed elsewhere")


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(
    "searcher",
    [
        OptunaSearch(seed=1),
        HyperOptSearch(random_state_seed=1),
        ConcurrencyLimiter(OptunaSearch(seed=1), 2),
        Repeater(OptunaSearch(seed=1), 2),
    ],
    ids=lambda searcher: type(searcher).__name__,
)
def test_a_search_by_a_library_is_restored_with_the_space_of_the_tuner(storage: Path, searcher: Any) -> None:
    tuner = Tuner(
        squared,
        param_space={"x": tune.uniform(-1, 1), "mode": tune.choice([str, int])},
        tune_config=TuneConfig(metric="loss", mode="min", num_samples=4, search_alg=searcher, max_concurrent_trials=1),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=0, callbacks=[Stops()]),
    )
    with pytest.raises(TimeoutError):
        tuner.fit()
    for _ in range(2):
        grid = Tuner.restore(storage / "search", squared, run_config=RunConfig(verbose=0)).fit()
        assert len(grid) == 4 and not grid.errors


@pytest.mark.usefixtures("head")
def test_one_searcher_may_serve_two_searches_of_one_space(storage: Path) -> None:
    searcher = OptunaSearch(seed=1)
    space = {"x": tune.uniform(-1, 1)}
    first = search(storage / "first", squared, space, num_samples=3, search_alg=searcher)
    second = search(storage / "second", squared, space, num_samples=3, search_alg=searcher)
    assert len({result.config["x"] for grid in (first, second) for result in grid}) == 6, "it goes on in the second"
    with pytest.raises(ConfigError, match="another space"):
        search(storage / "third", squared, {"x": tune.uniform(0, 9)}, search_alg=searcher)


@pytest.mark.usefixtures("head")
def test_trials_whose_directories_are_named_alike_have_one_each_also_after_a_restart(storage: Path) -> None:
    tuner = Tuner(
        squared,
        param_space={"x": tune.grid_search([1, 2, 3, 4])},
        tune_config=TuneConfig(trial_dirname_creator=lambda trial: "same", max_concurrent_trials=1),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=0, callbacks=[Stops()]),
    )
    with pytest.raises(TimeoutError):
        tuner.fit()
    grid = Tuner.restore(storage / "search", squared, run_config=RunConfig(verbose=0)).fit()
    assert [Path(result.path).name for result in grid] == ["same", "same_1", "same_2", "same_3"]
    assert [len(result.metrics_dataframe) for result in grid] == [1, 1, 1, 1]
    assert [result.metrics["loss"] for result in grid] == [1, 4, 9, 16]


COUNTS = """
import os, time
from carril import tune
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune.search import ConcurrencyLimiter, Searcher
from carril.tune.search.hyperopt import HyperOptSearch
from carril.tune.search.optuna import OptunaSearch

class Counts(Searcher):
    count = 0

    def suggest(self, trial_id):
        self.count += 1
        return {{"x": self.count / 16}}

    def on_trial_complete(self, trial_id, result=None, error=False):
        pass

def slow(kind):
    # It is seldom saved, as one that has much to save.
    class Slow(kind):
        def save(self, path):
            super().save(path)
            time.sleep(0.1)
    return Slow

def train(config):
    first = os.path.join({place!r}, str(config["x"]))
    if os.path.exists({go!r}) or len(os.listdir({place!r})) < 2:
        open(first, "w").close()
    while not os.path.exists(first) and not os.path.exists({go!r}):
        os.sched_yield()
    tune.report({{"loss": config["x"]}})

if __name__ == "__main__":
    results = Tuner(
        tune.with_resources(train, {{"CPU": 0.25}}),
        param_space={space},
        tune_config=TuneConfig(
            metric="loss", mode="min", num_samples=12, search_alg={searcher}, max_concurrent_trials=4
        ),
        run_config=RunConfig(name="search", storage_path={storage!r}, verbose=0),
    ).fit()
    print("configs", len(results), len({{result.config["x"] for result in results}}), flush=True)
"""


@pytest.mark.parametrize(
    "searcher",
    [
        "slow(Counts)()",
        "slow(OptunaSearch)(seed=1)",
        "slow(HyperOptSearch)(random_state_seed=1)",
        "ConcurrencyLimiter(slow(OptunaSearch)(seed=1), 4)",
    ],
)
def test_nothing_is_suggested_twice_though_the_driver_was_killed_before_the_searcher_was_saved(
    scripts: Scripts, tmp_path: Path, searcher: str
) -> None:
    storage, go, place = tmp_path / "storage", tmp_path / "go", tmp_path / "place"
    place.mkdir()
    space = "None" if "Counts" in searcher else '{"x": tune.uniform(0, 1)}'
    text = COUNTS.format(storage=str(storage), go=str(go), place=str(place), searcher=searcher, space=space)
    first = scripts.start(text)
    records = storage / "search" / "trials.jsonl"
    wait_until(
        lambda: records.exists() and records.read_text().count('"event": "made"') >= 6,
        "two trials have ended and four are under way",
    )
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    go.touch()
    assert "configs 12 12" in scripts.run(text)
