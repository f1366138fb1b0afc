"""Population-based training from its first trial to the files: which config a result has, and what is warned of."""

import json
from pathlib import Path
from typing import Any

import pytest
from searches import search

from carril import tune
from carril.train import Checkpoint
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune.schedulers import PopulationBasedTraining

pytestmark = pytest.mark.usefixtures("head")


def test_a_result_has_the_config_that_it_was_reported_with(storage: Path) -> None:
    """The trial that does badly is replaced at its last report too, after which the function has nothing left to do."""

    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        for step in range(latest.to_dict()["step"] if latest is not None else 0, 4):
            tune.report({"loss": -config["lr"]}, checkpoint=Checkpoint.from_dict({"step": step + 1}))

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": tune.uniform(0, 0.5)},
        # What was drawn never does better than the first trial.
        resample_probability=1.0,
        seed=3,
    )
    space = {"lr": tune.grid_search([1.0, 0.1])}
    # One at a time: they take turns.
    grid = search(storage, tune.with_resources(train, {"CPU": 8}), space, scheduler=scheduler)
    events = [json.loads(line) for line in (storage / "search" / "trials.jsonl").read_text().splitlines()]
    drawn = [event["config"]["lr"] for event in events if event["event"] == "exploited"]
    assert len(drawn) == 2, "after the second report and after the fourth"
    again = Tuner.restore(storage / "search", train).get_results()
    for result in (grid[1], again[1]):
        assert result.config["lr"] == -result.metrics["loss"] == result.metrics["config"]["lr"] == drawn[0]
    assert json.loads(Path(grid[1].path, "params.json").read_text())["lr"] == drawn[0]
    assert grid.get_dataframe()["config/lr"].tolist() == [1.0, drawn[0]]


def test_a_population_without_checkpoints_is_warned_of(storage: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(4):
            tune.report({"loss": config["lr"]})

    scheduler = PopulationBasedTraining(perturbation_interval=1, hyperparam_mutations={"lr": [0.1, 0.2]})
    Tuner(
        tune.with_resources(train, {"CPU": 8}),
        param_space={"lr": tune.grid_search([0.1, 0.2])},
        tune_config=TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        run_config=RunConfig(name="search", storage_path=str(storage)),
    ).fit()
    captured = capfd.readouterr()
    assert (captured.out + captured.err).count("no other trial has one") == 1, captured
