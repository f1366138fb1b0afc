"""Searches that a time budget or a stopper ends before their trials: what was cut off is unfinished, and resumes."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from carril import tune
from carril._internal.command import find_command
from carril.train import Checkpoint, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune.stopper import ExperimentPlateauStopper, Stopper

pytestmark = pytest.mark.usefixtures("head")

TRIALS = 6


def slow_at_first(config: dict[str, Any]) -> None:
    """Four reports with checkpoints. Until `go` is there, the trials with a large `x` wait after their second one."""
    latest = tune.get_checkpoint()
    first = latest.to_dict()["step"] + 1 if latest is not None else 0
    for step in range(first, 4):
        while config["x"] > 0 and step == 2 and not Path(config["go"]).exists():
            time.sleep(0.01)
        tune.report({"loss": config["x"], "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))


class Enough(Stopper):
    """Has seen enough once the trial of `x == 0` has ended and another has reported twice."""

    def __init__(self) -> None:
        self.done, self.enough = False, False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.done = self.done or (result["loss"] == 0 and result["training_iteration"] == 4)
        self.enough = self.done and result["loss"] > 0 and result["training_iteration"] == 2
        return self.enough

    def stop_all(self) -> bool:
        return self.enough


def tuner(storage: Path, run: dict[str, Any], **options: Any) -> Tuner:
    return Tuner(
        slow_at_first,
        param_space={"x": tune.grid_search(list(range(TRIALS))), "go": str(storage / "go")},
        tune_config=TuneConfig(metric="loss", mode="min", max_concurrent_trials=1, **options),
        run_config=RunConfig(name="search", storage_path=str(storage), **run),
    )


def trials_of(storage: Path) -> list[dict[str, Any]]:
    command = [find_command(), "tune", "show", str(storage / "search"), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in shown.splitlines()]


ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "budget": ({}, {"time_budget_s": 4.0}),
    "stopper": ({"stop": Enough()}, {}),
}


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("ends", ["budget", "stopper"])
def test_what_was_cut_off_is_unfinished_and_resumes(
    storage: Path, ends: str, restores: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    run, options = ENDS[ends]
    # The first trial must end within the budget: what the zygote still has to import does not count.
    Tuner(lambda config: {"loss": 0}, run_config=RunConfig(name="warm", storage_path=str(storage), verbose=0)).fit()
    grid = tuner(storage, run, **options).fit()
    shown = capfd.readouterr().out
    assert "finished: 1 of 6 trials done, 1 unfinished" in shown, shown
    assert "to go on    Tuner.restore(" in shown, shown
    assert (len(grid), grid.num_terminated, grid.num_errors) == (2, 1, 0)
    assert [result.metrics["training_iteration"] for result in grid] == [4, 2]
    assert sorted(trial["trial/state"] for trial in trials_of(storage)) == ["terminated", "unfinished"]

    (storage / "go").touch()
    if restores:
        given = {"tune_config": TuneConfig(metric="loss", mode="min"), "run_config": RunConfig(verbose=0)}
        grid = Tuner.restore(storage / "search", slow_at_first, **given).fit()
    else:
        grid = tuner(storage, {"resume": True}).fit()
    assert sorted(result.config["x"] for result in grid) == list(range(TRIALS))
    assert [result.metrics["training_iteration"] for result in grid] == [4] * TRIALS
    assert [result.metrics["first"] for result in grid] == [0, 2, 0, 0, 0, 0], "it resumed from its checkpoint"
    assert grid.num_terminated == TRIALS


def test_a_trial_that_never_had_room_is_run_on_resume(storage: Path) -> None:
    def endless(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"]})
        while not Path(config["go"]).exists():
            time.sleep(0.01)

    space = {"x": tune.grid_search(list(range(8))), "go": str(storage / "go")}

    def fit(**options: Any) -> Any:
        resumes = not options
        return Tuner(
            tune.with_resources(endless, {"CPU": 8}),
            param_space=space,
            tune_config=TuneConfig(metric="loss", mode="min", **options),
            run_config=RunConfig(name="search", storage_path=str(storage), verbose=0, resume=resumes),
        ).fit()

    grid = fit(time_budget_s=1.0)
    assert grid.num_terminated == 0
    (storage / "go").touch()
    grid = fit()
    assert [result.metrics["loss"] for result in grid] == list(range(8))
    assert grid.num_terminated == 8


def test_a_budget_that_is_used_up_is_new_when_the_search_resumes(storage: Path) -> None:
    grid = tuner(storage, {"verbose": 0}, time_budget_s=1.0).fit()
    assert grid.num_terminated < TRIALS
    (storage / "go").touch()
    grid = tuner(storage, {"verbose": 0, "resume": True}, time_budget_s=60.0).fit()
    assert grid.num_terminated == TRIALS


def test_a_plateau_of_the_experiment_leaves_its_trials_unfinished(storage: Path) -> None:
    stop = ExperimentPlateauStopper("loss", top=4, std=0.001)
    grid = tuner(storage, {"verbose": 0, "stop": stop}).fit()
    assert grid.num_terminated == 0 and len(grid) == 1
    (storage / "go").touch()
    grid = tuner(storage, {"verbose": 0, "resume": True, "stop": {"training_iteration": 3}}).fit()
    reached = [result.metrics["training_iteration"] for result in grid]
    assert reached[1:] == [3] * (TRIALS - 1), "a rule of one trial ends it for good"
    assert grid.num_terminated == TRIALS
