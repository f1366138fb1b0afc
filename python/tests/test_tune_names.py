"""What trials are called, and what they reserve."""

from pathlib import Path
from typing import Any

import pytest
from searches import Halving, quadratic, search

from carril import tune
from carril.train import RunConfig
from carril.tune import Tuner
from carril.tune._stored import read_experiment

pytestmark = pytest.mark.usefixtures("head")


def test_what_a_trial_reserves_may_depend_on_its_config(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        resources = tune.get_context().get_trial_resources().required_resources
        return {"loss": 1.0, "cpus": resources["CPU"]}

    trainable = tune.with_resources(train, lambda config: {"cpu": config["n"]})
    grid = search(storage, trainable, {"n": tune.grid_search([1, 2, 4])})
    assert [result.metrics["cpus"] for result in grid] == [1, 2, 4]


def test_a_registered_name_may_be_given_resources(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": 0.0, "cpus": tune.get_context().get_trial_resources().required_resources["CPU"]}

    tune.register_trainable("mine", train)
    options: Any = {"storage_path": str(storage), "verbose": 0}
    analysis = tune.run("mine", resources_per_trial={"cpu": 2}, name="run", **options)
    [trial] = analysis.trials
    assert trial.last_result["cpus"] == 2 and Path(trial.path).name.startswith("mine_")
    [result] = Tuner(tune.with_resources("mine", {"CPU": 3}), run_config=RunConfig(name="tuner", **options)).fit()
    assert result.metrics["cpus"] == 3


@pytest.mark.parametrize("searcher", [None, "optuna", Halving()], ids=["random", "optuna", "own"])
def test_names_tell_the_parameters_whoever_suggests_them(storage: Path, searcher: Any) -> None:
    drawn = {} if isinstance(searcher, Halving) else {"x": tune.uniform(0, 1), "deep": {"y": tune.randint(0, 9)}}
    grid = search(storage, quadratic(), {**drawn, "steps": 1, "sizes": [1, 2]}, search_alg=searcher)
    [trial] = read_experiment(grid.experiment_path).trials
    config = grid[0].config
    told = f"x={config['x']:.4f}" + (f",y={config['deep']['y']}" if "deep" in config else "")
    assert trial.tag == f"0_{told}" and f"_0_{told}_" in trial.directory


def test_trials_and_their_directories_may_be_named(storage: Path) -> None:
    told = []

    class Names(tune.Callback):
        def on_trial_complete(self, trial: Any, **info: Any) -> None:  # type: ignore[override]
            told.append(str(trial))

    grid = search(
        storage,
        quadratic(),
        {"x": tune.grid_search([1, 2])},
        trial_name_creator=lambda trial: f"mine_{trial.config['x']}",
        trial_dirname_creator=lambda trial: f"directory_{trial.config['x']}",
        callbacks=[Names()],
    )
    assert [Path(result.path).name for result in grid] == ["directory_1", "directory_2"]
    assert sorted(told) == ["mine_1", "mine_2"]
