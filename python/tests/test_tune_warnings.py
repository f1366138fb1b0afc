"""What a search says when something that it goes by is not there, once and by name; and what it shows of trials that wait."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import wait_until

from carril import tune
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune._stored import read_experiment
from carril.tune.error import TuneError
from carril.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from carril.tune.search import TPESearch
from carril.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    TrialPlateauStopper,
)

pytestmark = pytest.mark.usefixtures("head")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """The warnings so far."""

    def warnings() -> list[str]:
        captured = capsys.readouterr()
        return [line for line in (captured.out + captured.err).splitlines() if "warning" in line]

    yield warnings


def climbs(config: dict[str, Any]) -> None:
    """In step with the others: each has reported as often when the next report is made."""
    place = Path(config["place"])
    for step in range(8):
        (place / f"{config['rate']}.{step}").touch()
        while len(list(place.glob(f"*.{step}"))) < 4:
            os.sched_yield()
        tune.report({"score": config["rate"] * step})


def search(storage: Path, trainable: Any, rate: Any = None, **options: Any) -> Any:
    run = {name: options.pop(name) for name in ("stop", "callbacks") if name in options}
    return Tuner(
        trainable,
        param_space={"rate": rate or tune.grid_search([1.0, 2.0, 3.0, 4.0]), "place": str(storage)},
        tune_config=TuneConfig(**{"metric": "score", "mode": "max", **options}),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=1, **run),
    ).fit()


def test_a_population_without_checkpoints_is_told_of(storage: Path, said: Any) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"rate": [1.0, 4.0]}
    )
    search(storage, climbs, scheduler=scheduler)
    [warning] = said()
    assert "no trial has a checkpoint" in warning and "cannot go on from trial" in warning


@pytest.mark.parametrize("value", ["abc", [1.0]])
def test_a_metric_that_is_no_number_is_told_of_by_its_value_and_ends_the_search(
    storage: Path, said: Any, value: Any
) -> None:
    with pytest.raises(TuneError, match=r"no trial reported a number as the metric `score`: trial . reported") as error:
        search(storage, lambda config: {"score": value}, rate=tune.uniform(0, 1), search_alg=TPESearch())
    assert f'{{"score": {json.dumps(value)}}}' in str(error.value)
    [warning] = said()
    assert json.dumps(value) in warning and "not a number" in warning


def test_a_trial_that_waits_for_room_is_pending_for_whoever_looks(storage: Path) -> None:
    go = storage / "go"
    seen: list[Any] = []

    def looks() -> None:
        try:
            wait_until(lambda: (storage / "search" / "experiment.json").exists(), "the experiment begins")
            wait_until(lambda: [trial.status for trial in trials()] == ["running", "pending"], "the second one waits")
            seen.extend(trials())
            command = [Path(sys.executable).parent / "carril", "tune", "show", storage / "search"]
            words = subprocess.run(command, capture_output=True, text=True, check=True)
            seen.append(words.stdout)
        finally:
            go.touch()

    def trials() -> list[Any]:
        return read_experiment(storage / "search").trials

    def holds(config: dict[str, Any]) -> dict[str, Any]:
        while not go.exists():
            os.sched_yield()
        return {"score": 1.0}

    looker = threading.Thread(target=looks)
    looker.start()
    grid = search(storage, tune.with_resources(holds, {"CPU": 8}), rate=tune.grid_search([1, 2]))
    looker.join()
    [_, waiting, words] = seen
    assert "CPU" in waiting.reason and "pending" in words
    assert [trial.status for trial in trials()] == ["terminated"] * 2
    assert len(grid) == 2


def test_a_time_that_no_trial_reports_is_told_of(storage: Path, said: Any) -> None:
    search(storage, climbs, scheduler=ASHAScheduler(time_attr="epoch", max_t=5))
    [warning] = said()
    assert "reported `score` and no `epoch`, without which the scheduler decides nothing" in warning


@pytest.mark.parametrize(
    ("stopper", "rest"),
    [
        (TrialPlateauStopper("loss"), "no `loss`, without which `TrialPlateauStopper` stops nothing"),
        (
            CombinedStopper(MaximumIterationStopper(3), ExperimentPlateauStopper("scores")),
            "no `scores`, without which `CombinedStopper` stops nothing; did you mean `score`?",
        ),
    ],
)
def test_a_stopper_s_metric_that_no_trial_reports_is_a_warning(
    storage: Path, said: Any, stopper: Any, rest: str
) -> None:
    search(storage, climbs, stop=stopper)
    [warning] = said()
    assert f"reported `score` and {rest}" in warning


def test_a_metric_that_the_first_report_lacks_is_told_of_at_once_and_ends_the_search(storage: Path, said: Any) -> None:
    heard = []

    class Hears(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.extend(said())

    with pytest.raises(TuneError, match=r"no trial reported the metric `accuracy`: trial . reported `score`"):
        search(storage, climbs, metric="accuracy", callbacks=[Hears()])
    [warning] = heard
    assert "reported `score` and no `accuracy`" in warning


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_trial_that_reports_nothing_leaves_the_search_to_the_others(storage: Path, at_once: int) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["rate"] > 0:
            tune.report({"score": config["rate"]})

    grid = search(storage, train, tune.grid_search([0.0, 1.0, 2.0]), max_concurrent_trials=at_once)
    assert (len(grid), grid.num_terminated) == (3, 3)
    assert grid.get_best_result().config["rate"] == 2.0


def test_that_no_trial_reports_anything_is_said_when_all_have_ended(storage: Path) -> None:
    with pytest.raises(TuneError, match="no trial reported `score`: trial 0 reported nothing"):
        search(storage, lambda config: None, tune.grid_search([1.0, 2.0, 3.0]), max_concurrent_trials=1)
    assert [trial.status for trial in read_experiment(storage / "search").trials] == ["terminated"] * 3
