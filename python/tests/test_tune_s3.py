"""Searches that are kept in a bucket: what is there, who can read it, and that they go on from it."""

import os
from pathlib import Path
from typing import Any

import pytest
from s3_server import Place, place_fixture, s3_fixture, s3_variables_fixture  # noqa: F401

from carril import tune
from carril.train import Checkpoint, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune.schedulers import PopulationBasedTraining

pytestmark = pytest.mark.usefixtures("s3_variables", "head")


def search(place: Place, trainable: Any, space: dict[str, Any], name: str, **options: Any) -> Any:
    return Tuner(
        trainable,
        param_space=space,
        tune_config=TuneConfig(**{"metric": "loss", "mode": "min", **options}),
        run_config=RunConfig(name=name, storage_path=place.uri, verbose=0),
    ).fit()


def test_an_experiment_in_a_bucket_is_read_from_there_and_goes_on_from_there(place: Place, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        for step in range(first, 3):
            if config["x"] == 1 and step == 2 and not os.path.exists(config["go"]):
                raise ValueError("not yet")
            tune.report({"loss": config["x"], "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))

    go = tmp_path / "go"
    grid = search(place, train, {"x": tune.grid_search([0, 1]), "go": str(go)}, "bucket")
    assert grid.num_errors == 1 and grid.experiment_path == f"{place.uri}/bucket"
    assert grid[0].checkpoint.to_dict() == {"step": 2}
    kept = {key.split("/")[-1] for key in place.objects()}
    assert {"experiment.json", "trials.jsonl", "tuner.pkl", "result.json", "params.json"} <= kept
    go.touch()
    tuner = Tuner.restore(f"{place.uri}/bucket", train, resume_errored=True, run_config=RunConfig(verbose=0))
    grid = tuner.fit()
    assert not grid.errors and len(grid) == 2
    assert grid[1].metrics["first"] == 2


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.value, self.rate = 0.0, config["rate"]

    def step(self) -> dict[str, Any]:
        place = Path(self.config["place"])
        (place / f"{self.trial_id}.here").touch()
        while len(list(place.glob("*.here"))) < 2:
            os.sched_yield()
        self.value += self.rate
        return {"loss": -self.value}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "value").write_text(str(self.value))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.value = float(Path(checkpoint_dir, "value").read_text())


def test_a_trial_goes_on_from_the_checkpoint_of_another_in_the_bucket(place: Place, tmp_path: Path) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"rate": [1.0, 8.0]},
        quantile_fraction=0.5,
        synch=True,
        seed=1,
    )
    tuner = Tuner(
        Counter,
        param_space={"rate": tune.grid_search([1.0, 8.0]), "place": str(tmp_path)},
        tune_config=TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        run_config=RunConfig(name="pbt", storage_path=place.uri, verbose=0, stop={"training_iteration": 20}),
    )
    grid = tuner.fit()
    assert not grid.errors, grid.errors
    assert min(-result.metrics["loss"] for result in grid) > 20
