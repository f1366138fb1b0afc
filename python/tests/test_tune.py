"""Searches as a user makes them: what runs, what is stopped, what fails, what the files say."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from searches import Halving, quadratic, search

from carril import tune
from carril.exceptions import ConfigError, PlacementError
from carril.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune._stored import read_experiment
from carril.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining, TrialScheduler

pytestmark = pytest.mark.usefixtures("head")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def test_every_combination_of_a_grid_is_run_and_the_best_is_found(storage: Path) -> None:
    grid = search(storage, quadratic(), {"x": tune.grid_search([0.1, 0.3, 0.9]), "steps": 2})
    assert [result.config["x"] for result in grid] == [0.1, 0.3, 0.9]
    assert not grid.errors and grid.num_terminated == 3
    best = grid.get_best_result()
    assert best.config == {"x": 0.3, "steps": 2}
    assert best.metrics["loss"] == pytest.approx(0.5) and best.metrics["training_iteration"] == 2
    assert grid.experiment_path == str(storage / "search")


def test_the_files_of_a_trial_say_what_it_was_and_what_it_reported(storage: Path) -> None:
    grid = search(storage, quadratic(), {"x": tune.uniform(0, 1), "steps": 2}, num_samples=2)
    for result in grid:
        directory = Path(result.path)
        config = json.loads((directory / "params.json").read_text())
        assert config == result.config
        rows = lines(directory / "result.json")
        assert [row["training_iteration"] for row in rows] == [1, 2]
        assert all(row["trial_id"] == result.trial_id and row["config"] == config for row in rows)
        assert rows[0]["experiment_tag"].endswith(f"x={config['x']:.4f}")
        assert len((directory / "progress.csv").read_text().splitlines()) == 3
        assert f"x={config['x']:.4f}" in directory.name
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(directory)).Reload()
        assert len(events.Scalars("loss")) == 2
        content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        parameters = HParamsPluginData.FromString(content).session_start_info.hparams
        assert parameters["x"].number_value == config["x"]


def test_a_seed_repeats_the_search_and_functions_see_the_rest_of_the_config(storage: Path) -> None:
    from carril.tune.search import BasicVariantGenerator

    space = {
        "x": tune.uniform(0, 1),
        "deep": {"n": tune.randint(1, 10), "twice": tune.sample_from(lambda spec: spec.config.deep.n * 2)},
    }
    found = []
    for name in ("a", "b"):
        searcher = BasicVariantGenerator(random_state=5)
        grid = search(storage, quadratic(), space, num_samples=3, search_alg=searcher, name=name)
        found.append([result.config for result in grid])
    assert found[0] == found[1]
    assert all(config["deep"]["twice"] == 2 * config["deep"]["n"] for config in found[0])


@pytest.mark.parametrize("searcher", ["random", "optuna"])
def test_a_function_may_have_no_argument_and_may_return_a_domain(storage: Path, searcher: str) -> None:
    space = {
        "x": tune.uniform(0, 1),
        "one": tune.sample_from(lambda: 1),
        "drawn": tune.sample_from(lambda config: tune.uniform(config["x"] + 5, 7)),
    }
    [result] = search(storage, quadratic(), space, search_alg=searcher)
    assert result.config["one"] == 1 and result.config["x"] + 5 <= result.config["drawn"] < 7


class Odd:
    """A value that JSON has no word for."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_values_of_any_kind_reach_the_trial_as_they_are(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(config["pair"], tuple)
        return {"loss": config["odd"].number + config["pair"][1] + config["function"](1)}

    space = {"odd": tune.grid_search([Odd(1), Odd(5)]), "pair": (1, 2), "function": lambda x: x + 1}
    grid = search(storage, train, space)
    assert not grid.errors, grid.errors
    assert [result.metrics["loss"] for result in grid] == [5, 9]
    assert grid.get_best_result().config["odd"].number == 1


def test_a_function_may_return_or_yield_its_results(storage: Path) -> None:
    def returns(config: dict[str, Any]) -> float:
        return config["x"] * 2.0

    def yields(config: dict[str, Any]) -> Any:
        yield {"loss": 2.0}
        yield {"loss": config["x"]}

    grid = search(storage, returns, {"x": tune.grid_search([1, 2])}, metric="_metric", name="returns")
    assert [result.metrics["_metric"] for result in grid] == [2.0, 4.0]
    grid = search(storage, yields, {"x": 0.5}, name="yields")
    assert grid[0].metrics["loss"] == 0.5 and grid[0].metrics["training_iteration"] == 2


def test_asha_stops_a_trial_at_the_very_report_that_was_too_bad(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        try:
            for step in range(20):
                tune.report({"loss": config["x"] / 3, "step": step})
        finally:
            Path(config["notes"], str(config["x"])).write_text(str(step + 1))

    scheduler = ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2)
    space = {"x": tune.grid_search([1, 2, 3, 4, 5, 6]), "notes": str(storage)}
    grid = search(storage, train, space, scheduler=scheduler, max_concurrent_trials=1)
    made = {int(path.name): int(path.read_text()) for path in storage.iterdir() if path.name.isdigit()}
    # The first one is the best and goes on to the end; each later one is worse than half of those before it.
    assert made[1] == 8
    assert all(made[x] in (2, 4) for x in range(3, 7)), made
    for result in grid:
        assert result.metrics["training_iteration"] == made[result.config["x"]]
    assert all(result.error is None for result in grid)
    reasons = [trial.reason for trial in read_experiment(storage / "search").trials if trial.early]
    # With as many digits as people read.
    assert len(reasons) >= 4, reasons
    assert all(re.match(r"[\d.]{1,6} at the rung of [24] is worse than [\d.]{1,6}: ", why) for why in reasons), reasons


def test_rules_a_function_and_a_time_budget_end_trials(storage: Path) -> None:
    grid = search(storage, quadratic(), {"x": 0.3, "steps": 10}, stop={"training_iteration": 4}, name="rule")
    assert grid[0].metrics["training_iteration"] == 4
    with pytest.raises(tune.TuneError, match=r"trial 0 reported .* and no `accuracy`, which `stop` is to look at"):
        search(storage, quadratic(), {"x": 0.3, "steps": 10}, stop={"accuracy": 0.9}, name="nothing")
    grid = search(
        storage, quadratic(), {"x": 0.3, "steps": 10}, stop=lambda trial, result: result["step"] >= 1, name="function"
    )
    assert grid[0].metrics["training_iteration"] == 2

    def endless(config: dict[str, Any]) -> None:
        while True:
            tune.report({"loss": 1.0})
            time.sleep(0.01)

    grid = search(storage, endless, {}, num_samples=-1, max_concurrent_trials=2, time_budget_s=1.0, name="budget")
    assert len(grid) >= 2 and not grid.errors


def test_a_trial_that_fails_is_told_of_and_does_not_stop_the_others(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, float]:
        if config["x"] == 1:
            raise ValueError("this one is bad")
        return {"loss": float(config["x"])}

    grid = search(storage, train, {"x": tune.grid_search([0, 1, 2])})
    assert grid.num_errors == 1 and grid.num_terminated == 2
    assert str(grid[1].error).startswith("the trial failed: ValueError: this one is bad\n")
    told = read_experiment(grid.experiment_path).trials[1].error
    assert told is not None and told.startswith("ValueError: this one is bad at ")
    assert "this one is bad" in Path(grid[1].path, "error.txt").read_text()
    assert grid.get_best_result().config == {"x": 0}


def test_a_trial_is_tried_again_as_often_as_that_is_allowed(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        for step in range(first, 4):
            if step == 2 and not os.path.exists(config["mark"]):
                open(config["mark"], "w").close()
                raise RuntimeError("once")
            tune.report({"loss": 1.0, "step": step, "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))

    space = {"mark": str(storage / "mark")}
    grid = search(storage, train, space, failure_config=FailureConfig(max_failures=1))
    assert not grid.errors, grid.errors
    assert grid[0].metrics["step"] == 3 and grid[0].metrics["first"] == 2
    assert grid[0].metrics["training_iteration"] == 4


def test_fail_fast_ends_the_search(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["x"] == 0:
            raise ValueError("first")
        while True:
            tune.report({"loss": 1.0})
            time.sleep(0.01)

    grid = search(storage, train, {"x": tune.grid_search([1, 2, 0])}, failure_config=FailureConfig(fail_fast=True))
    assert grid.num_errors == 1
    with pytest.raises(Exception, match="first"):
        search(
            storage,
            train,
            {"x": tune.grid_search([0])},
            failure_config=FailureConfig(fail_fast="raise"),
            name="raises",
        )


class Counter(tune.Trainable):
    """Counts up by its rate; its checkpoint is the count."""

    def setup(self, config: dict[str, Any]) -> None:
        self.value = 0.0
        self.rate = config["rate"]

    def step(self) -> dict[str, Any]:
        self.value += self.rate
        return {"score": self.value, "rate": self.rate, "pid": os.getpid()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "value").write_text(str(self.value))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.value = float(Path(checkpoint_dir, "value").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.rate, self.value = new_config["rate"], 0.0
        return True


def test_the_class_form_steps_saves_and_stops(storage: Path) -> None:
    grid = search(
        storage,
        Counter,
        {"rate": tune.grid_search([1.0, 2.0])},
        metric="score",
        mode="max",
        stop={"training_iteration": 5},
        checkpoint_config=CheckpointConfig(checkpoint_frequency=2, num_to_keep=2),
    )
    assert [result.metrics["score"] for result in grid] == [5.0, 10.0]
    best = grid.get_best_result()
    with best.checkpoint.as_directory() as directory:
        assert Path(directory, "value").read_text() == "10.0"
    assert best.metrics["training_iteration"] == 5


class Together(Counter):
    """Begins when the other one is there too."""

    def step(self) -> dict[str, Any]:
        place = Path(self.config["place"])
        (place / f"{self.trial_id}.here").touch()
        while len(list(place.glob("*.here"))) < 2:
            os.sched_yield()
        return super().step()


def test_in_a_population_a_bad_trial_goes_on_from_a_good_one(storage: Path) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"rate": [1.0, 2.0, 4.0, 8.0]},
        quantile_fraction=0.5,
        seed=3,
    )
    grid = search(
        storage,
        Together,
        {"rate": tune.grid_search([1.0, 8.0]), "place": str(storage)},
        metric="score",
        mode="max",
        scheduler=scheduler,
        stop={"training_iteration": 60},
    )
    assert not grid.errors, grid.errors
    records = lines(storage / "search" / "trials.jsonl")
    exploited = [record for record in records if record["event"] == "exploited"]
    assert exploited and exploited[0]["trial"] == 0 and exploited[0]["from"] == 1, records
    # By itself it comes to 60. How far the better one is when it is copied, and what becomes of the rate, is chance.
    assert grid[0].metrics["score"] > 60
    assert all(result.metrics["training_iteration"] >= 60 for result in grid)
    assert (storage / "search" / "pbt_global.txt").exists()


def test_hyperband_pauses_trials_and_brings_the_best_to_the_end(storage: Path) -> None:
    scheduler = HyperBandScheduler(max_t=4, reduction_factor=2)
    grid = search(
        storage,
        Counter,
        {"rate": tune.grid_search([1.0, 2.0, 3.0, 4.0])},
        metric="score",
        mode="max",
        scheduler=scheduler,
        max_concurrent_trials=2,
    )
    assert not grid.errors, grid.errors
    assert grid.get_best_result().metrics["score"] == 16.0
    assert any(record["event"] == "paused" for record in lines(storage / "search" / "trials.jsonl"))
    assert min(result.metrics["training_iteration"] for result in grid) < 4


def test_reuse_serves_many_trials_by_few_processes_and_keeps_their_files_apart(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        print("this is", config["x"])
        tune.report({"loss": float(config["x"]), "pid": os.getpid(), "cwd": os.getcwd()})

    grid = search(storage, train, {"x": tune.grid_search(list(range(12)))}, reuse_actors=True, max_concurrent_trials=2)
    assert not grid.errors, grid.errors
    assert len({result.metrics["pid"] for result in grid}) <= 3
    for result in grid:
        assert result.metrics["cwd"] == result.path
        log = Path(result.path, "ranks", "rank_0.attempt_0.log").read_text()
        assert log == f"this is {result.config['x']}\n"


def test_a_searcher_of_the_users_is_asked_and_told(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, float]:
        return {"loss": config["x"] + config["constant"]}

    searcher = Halving()
    grid = search(storage, train, {"constant": 1}, search_alg=searcher, num_samples=10, max_concurrent_trials=1)
    assert [result.config["x"] for result in grid] == [8.0, 4.0, 2.0, 1.0]
    assert searcher.seen == [result.trial_id for result in grid]


def test_a_scheduler_of_the_users_decides(storage: Path) -> None:
    class Strict(TrialScheduler):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            return self.STOP if trial.config["x"] > 1 else self.CONTINUE

    grid = search(storage, quadratic(), {"x": tune.grid_search([1, 2]), "steps": 3}, scheduler=Strict())
    assert [result.metrics["training_iteration"] for result in grid] == [3, 1]


def test_callbacks_hear_of_everything_in_order(storage: Path) -> None:
    heard: list[str] = []

    class Listener(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.append(f"start {trial.config['x']}")

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            heard.append(f"result {result['step']}")

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.append("complete")

        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            heard.append(f"end {len(trials)}")

    search(storage, quadratic(), {"x": 0.3, "steps": 2}, callbacks=[Listener()])
    assert heard == ["start 0.3", "result 0", "result 1", "complete", "end 1"]


def test_a_callback_that_fails_ends_the_search_with_its_error(storage: Path) -> None:
    class Bad(tune.Callback):
        def on_trial_result(self, *arguments: Any, **info: Any) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        search(storage, quadratic(), {"x": 0.3}, num_samples=20, callbacks=[Bad()])


def test_a_trainer_can_be_tuned(storage: Path) -> None:
    from carril.train import DataParallelTrainer, ScalingConfig, get_context, report

    def loop(config: dict[str, Any]) -> None:
        for step in range(3):
            report({"loss": config["x"] + config["own"], "world": get_context().get_world_size(), "step": step})

    trainer = DataParallelTrainer(
        loop, train_loop_config={"own": 1, "x": 100}, scaling_config=ScalingConfig(num_workers=2)
    )
    space = {"train_loop_config": {"x": tune.grid_search([1, 2])}}
    grid = search(storage, trainer, space, stop={"training_iteration": 2})
    assert not grid.errors, grid.errors
    assert [result.metrics["loss"] for result in grid] == [2, 3]
    assert all(result.metrics["world"] == 2 and result.metrics["training_iteration"] == 2 for result in grid)


@pytest.mark.parametrize("given", [None, {}, {"num_to_keep": 3}])
def test_what_the_tuner_leaves_open_of_a_run_config_is_the_trainers(
    storage: Path, given: dict[str, Any] | None
) -> None:
    from carril.train import DataParallelTrainer, report

    def loop(config: dict[str, Any]) -> None:
        if not (storage / "failed").exists():
            (storage / "failed").touch()
            raise RuntimeError("once")
        for step in range(5):
            report({"loss": config["lr"] * abs(step - 2)}, checkpoint=Checkpoint.from_dict({"step": step}))

    of_trainer = RunConfig(
        name="of-the-trainer",
        storage_path=str(storage),
        verbose=0,
        failure_config=FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
        ),
    )
    trainer = DataParallelTrainer(loop, run_config=of_trainer)
    run_config = None
    if given is not None:
        checkpoints = CheckpointConfig(**given)
        fails = FailureConfig(fail_fast=True)
        run_config = RunConfig(
            name="own", storage_path=str(storage), checkpoint_config=checkpoints, failure_config=fails
        )
    grid = Tuner(trainer, param_space={"train_loop_config": {"lr": 1.0}}, run_config=run_config).fit()
    assert os.path.basename(grid.experiment_path) == ("of-the-trainer" if given is None else "own")
    assert grid[0].error is None, "the trainer allows one failure"
    kept = [checkpoint.to_dict()["step"] for checkpoint, _ in grid[0].best_checkpoints]
    # The best by the trainer's score, and the newest.
    assert sorted(kept) == ([1, 2, 3, 4] if given == {"num_to_keep": 3} else [2, 3, 4])


def test_a_population_shares_the_one_place_that_there_is(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        state = latest.to_dict() if latest is not None else {"score": 0.0, "step": 0}
        for step in range(state["step"], 8):
            state = {"score": state["score"] + config["lr"], "step": step + 1}
            tune.report({"loss": -state["score"], "lr": config["lr"]}, checkpoint=Checkpoint.from_dict(state))

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": tune.uniform(0, 1)},
        seed=3,
    )
    space = {"lr": tune.grid_search([0.1, 0.4, 0.7, 1.0])}
    one_at_a_time = tune.with_resources(train, {"CPU": 8})
    grid = search(storage, one_at_a_time, space, scheduler=scheduler)
    assert [result.metrics["training_iteration"] for result in grid] == [8] * 4
    events = lines(storage / "search" / "trials.jsonl")
    started = [event["trial"] for event in events if event["event"] == "started"]
    assert sorted(started[:4]) == [0, 1, 2, 3], "all begin before one has its second turn"
    assert len(started) >= 12, started
    assert any(event["event"] == "exploited" for event in events)
    ended = [event for event in events if event["event"] == "ended"]
    assert len(ended) == 4 and events.index(ended[0]) > max(
        at for at, event in enumerate(events) if event["event"] == "made"
    )


def test_a_trial_may_train_a_group_inside_on_what_it_has(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        from carril.train import DataParallelTrainer, RunConfig, ScalingConfig
        from carril.tune.integration.ray_train import TuneReportCallback

        def loop(config: dict[str, Any]) -> None:
            from carril.train import report

            report({"loss": config["x"]})

        DataParallelTrainer(
            loop,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=config["workers"]),
            run_config=RunConfig(storage_path=config["storage"], callbacks=[TuneReportCallback()], verbose=0),
        ).fit()

    # The trials reserve all eight CPUs, so that a group inside finds room only in its own trial's.
    trainable = tune.with_resources(train, {"cpu": 4})
    space = {"x": tune.grid_search([1.0, 2.0, 3.0]), "workers": 4, "storage": str(storage / "inner")}
    grid = search(storage, trainable, space)
    assert not grid.errors, grid.errors
    assert [result.metrics["loss"] for result in grid] == [1.0, 2.0, 3.0]
    grid = search(storage, trainable, {**space, "workers": 9}, name="never")
    assert grid.num_errors == 3 and "9 workers" in str(grid.errors[0])


def test_what_did_not_finish_goes_on_and_what_did_is_not_run_again(storage: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        with open(config["notes"], "a") as notes:
            notes.write(f"{config['x']}\n")
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        for step in range(first, 3):
            if config["x"] == 2 and step == 1 and not os.path.exists(config["go"]):
                tune.report({"loss": 0.0, "waits": True})
                while not os.path.exists(config["go"]):
                    time.sleep(0.01)
            tune.report({"loss": 1.0, "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))

    notes, go = storage / "notes", storage / "go"
    space = {"x": tune.grid_search([0, 1, 2, 3]), "notes": str(notes), "go": str(go)}

    class Stops(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            if result.get("waits"):
                raise TimeoutError("the machine is needed elsewhere")

    with pytest.raises(TimeoutError):
        search(storage, train, space, max_concurrent_trials=1, callbacks=[Stops()])
    assert notes.read_text().split() == ["0", "1", "2"]
    go.touch()
    assert Tuner.can_restore(storage / "search")
    tuner = Tuner.restore(str(storage / "search"), train, run_config=RunConfig(verbose=0))
    grid = tuner.fit()
    assert [result.config["x"] for result in grid] == [0, 1, 2, 3]
    assert not grid.errors and grid.num_terminated == 4
    assert notes.read_text().split() == ["0", "1", "2", "2", "3"]
    assert grid[2].metrics["first"] == 1, "it goes on from its checkpoint"


def test_a_moved_experiment_is_restored_where_it_is(storage: Path) -> None:
    search(storage, quadratic(), {"x": tune.grid_search([1, 2])})
    (storage / "elsewhere").mkdir()
    os.rename(storage / "search", storage / "elsewhere" / "moved")
    tuner = Tuner.restore(str(storage / "elsewhere" / "moved"), quadratic(), run_config=RunConfig(verbose=0))
    assert len(tuner.get_results()) == 2
    assert len(tuner.fit()) == 2


def test_a_metric_that_nobody_reports_is_one_clear_error(storage: Path) -> None:
    with pytest.raises(tune.TuneError, match=r"`los`.*`loss`"):
        search(storage, quadratic(), {"x": 1}, metric="los", num_samples=50)


def test_what_can_never_run_is_refused_before_the_first_trial(storage: Path) -> None:
    trainable = tune.with_resources(quadratic(), {"cpu": 1000})
    with pytest.raises(PlacementError, match="no trial can ever run"):
        search(storage, trainable, {"x": 1})
    assert not (storage / "search").exists()
    with pytest.raises(ConfigError, match="goes by"):
        search(storage, quadratic(), {"x": 1}, scheduler=ASHAScheduler(metric="accuracy", mode="max"))


def test_the_older_way_to_search_returns_an_analysis(storage: Path) -> None:
    analysis = tune.run(
        quadratic(),
        config={"x": tune.grid_search([0.3, 1.0])},
        metric="loss",
        mode="min",
        name="older",
        storage_path=str(storage),
        verbose=0,
    )
    assert analysis.best_config == {"x": 0.3}
    assert len(analysis.trials) == 2

    def fails(config: dict[str, Any]) -> None:
        raise ValueError("no")

    with pytest.raises(tune.TuneError, match="1 of 1"):
        tune.run(fails, config={}, name="fails", storage_path=str(storage), verbose=0)
    with pytest.raises(ConfigError, match=r"`tune.run\(resume='BLA'\)`: it must be True, False or one of 'AUTO'"):
        tune.run(fails, config={}, name="fails", storage_path=str(storage), resume="BLA")


def test_the_older_way_to_go_on_takes_the_words_of_ray(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        latest = tune.get_checkpoint()
        tune.report({"loss": 0.0, "first": latest is None}, checkpoint=Checkpoint.from_dict({"step": 1}))
        if not os.path.exists(config["go"]):
            raise ValueError("not yet")
        return {"loss": 0.0, "first": latest is None}

    for resume, first in (("AUTO+ERRORED", False), ("LOCAL+RESTART_ERRORED", True)):
        go = storage / f"go_{first}"
        options: Any = {"config": {"go": str(go)}, "name": resume, "storage_path": str(storage), "verbose": 0}
        tune.run(train, raise_on_failed_trial=False, **options)
        go.touch()
        [trial] = tune.run(train, resume=resume, **options).trials
        assert trial.last_result["first"] is first


def test_reuse_keeps_the_object_of_the_class_form_where_it_can_be_reset(storage: Path) -> None:
    grid = search(
        storage,
        Counter,
        {"rate": tune.grid_search([1.0, 2.0, 3.0])},
        metric="score",
        mode="max",
        reuse_actors=True,
        max_concurrent_trials=1,
        stop={"training_iteration": 2},
    )
    assert [result.metrics["score"] for result in grid] == [2.0, 4.0, 6.0]
    assert len({result.metrics["pid"] for result in grid}) == 1


def test_the_native_searchers_learn_from_what_trials_report(storage: Path) -> None:
    from carril.tune.search import ConcurrencyLimiter, GPSearch, TPESearch

    def train(config: dict[str, Any]) -> dict[str, float]:
        return {"loss": (config["x"] - 0.7) ** 2}

    for searcher in (TPESearch(seed=1), ConcurrencyLimiter(GPSearch(seed=1), max_concurrent=2)):
        name = type(searcher).__name__
        grid = search(
            storage,
            train,
            {"x": tune.uniform(0, 1), "constant": "kept"},
            search_alg=searcher,
            num_samples=30,
            reuse_actors=True,
            max_concurrent_trials=2,
            name=name,
        )
        losses = [result.metrics["loss"] for result in grid]
        assert len(losses) == 30 and all(result.config["constant"] == "kept" for result in grid)
        median = [sorted(part)[5] for part in (losses[:10], losses[-10:])]
        assert median[1] < median[0] / 10, (name, losses)


def test_the_last_table_shows_the_last_report_of_each_trial(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def train(config: dict[str, Any]) -> None:
        for seconds, iteration in ((1.0, 1), (61.0, 7)):
            tune.report({"loss": config["x"], "time_total_s": seconds, "training_iteration": iteration})

    for reports in (False, True):
        Tuner(
            train,
            param_space={"x": tune.grid_search([1, 2])},
            tune_config=TuneConfig(metric="loss", mode="min"),
            run_config=RunConfig(
                name=f"search_{reports}", storage_path=str(storage), callbacks=[tune.Callback()] if reports else []
            ),
        ).fit()
        rows = [line.split() for line in capsys.readouterr().out.splitlines() if " terminated " in line]
        assert [row[2:] for row in rows] == [["1", "7", "1:01", "1"], ["2", "7", "1:01", "2"]]
