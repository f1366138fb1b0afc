"""The results of an experiment, read from its directory: the grid, the best of it, and the older analysis.

Experiments are written by a small builder, from what the head writes. Trials whose checkpoints are looked at are real
runs: the directory of a trial is that of a run.
"""

import json
import math
import os
import pickle
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from runs import fit
from s3_server import Place, S3Server, place_fixture, s3_fixture, s3_variables_fixture  # noqa: F401

from carril.exceptions import ConfigError, NotFoundError
from carril.train import Checkpoint, Result
from carril.tune._result_grid import ResultGrid, TrialResult
from carril.tune._stored import StoredExperiment, read_experiment
from carril.tune.analysis import ExperimentAnalysis

NAN, INFINITY = math.nan, math.inf


class Builder:
    """Writes the directory of an experiment, as the head does."""

    def __init__(self, storage: Path, name: str = "search", **record: Any) -> None:
        self.path = storage / name
        self.path.mkdir(parents=True)
        self.record = {
            "name": name,
            "id": "3f2a1c0ffee",
            "created": 1.0,
            "ended": 9.0,
            "metric": "loss",
            "mode": "min",
            **record,
        }
        self.record.setdefault("status", "finished")
        (self.path / "experiment.json").write_text(json.dumps(self.record))
        self._trials = (self.path / "trials.jsonl").open("a")
        self.made = 0

    def event(self, kind: str, trial: int, **fields: Any) -> None:
        self._trials.write(json.dumps({"event": kind, "at": 2.0, "trial": trial, **fields}) + "\n")
        self._trials.flush()

    def directory(self, number: int) -> str:
        return f"train_3f2a1_{number:05}_{number}"

    def make(self, config: dict[str, Any]) -> int:
        number, self.made = self.made, self.made + 1
        names = {"id": f"3f2a1_{number:05}", "name": f"train_3f2a1_{number:05}", "directory": self.directory(number)}
        self.event("made", number, **names, tag=f"{number}_x", config=config, resources={"CPU": 1.0})
        return number

    def trial(self, config: dict[str, Any], *results: dict[str, Any], status: str = "terminated", **end: Any) -> int:
        """A trial from its making to its end; its results go into its directory too."""
        number = self.make(config)
        self.event("started", number)
        rows = [self.row(number, config, at, result) for at, result in enumerate(results, 1)]
        if rows:
            (self.path / self.directory(number)).mkdir()
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (self.path / self.directory(number) / "result.json").write_text(lines)
        self.end(number, rows[-1] if rows else None, len(rows), status=status, **end)
        return number

    def row(self, number: int, config: dict[str, Any], iteration: int, result: dict[str, Any]) -> dict[str, Any]:
        automatic = {"training_iteration": iteration, "trial_id": f"3f2a1_{number:05}", "config": config}
        return {**automatic, "time_total_s": 0.5 * iteration, **result}

    def end(self, number: int, metrics: dict[str, Any] | None, iterations: int, **fields: Any) -> None:
        ended = {"status": "terminated", "reason": "it returned", "error": None, "checkpoint": None, **fields}
        self.event("ended", number, metrics=metrics, iterations=iterations, seconds=0.5 * iterations, **ended)

    def read(self) -> StoredExperiment:
        return read_experiment(self.path)

    def grid(self) -> ResultGrid:
        return ResultGrid.of(self.read())


def losses(builder: Builder, *series: list[float]) -> ResultGrid:
    """The grid of trials that reported these losses."""
    for number, values in enumerate(series):
        builder.trial({"lr": number}, *({"loss": value} for value in values))
    return builder.grid()


def best(grid: ResultGrid, *arguments: Any, **named: Any) -> int:
    """The `lr` of the best result, which tests number their trials by."""
    config = grid.get_best_result(*arguments, **named).config
    assert config is not None
    return int(config["lr"])


def test_a_trial_is_what_its_events_tell(storage: Path) -> None:
    builder = Builder(storage, status="running", ended=None)
    builder.trial({"lr": 0.1}, {"loss": 1.0}, {"loss": 0.5}, checkpoint="checkpoint_000001")
    builder.trial({"lr": 0.2}, status="error", error="KeyError: 'x' at script.py:10", reason="it failed")
    waits, runs, paused = (builder.make({"lr": lr}) for lr in (0.3, 0.4, 0.5))
    builder.event("started", runs)
    builder.event("started", paused)
    builder.event("exploited", paused, config={"lr": 0.6}, reason="…", **{"from": 0})
    builder.event("paused", paused, reason="others come first")
    experiment = builder.read()
    assert experiment.path == str(builder.path) and experiment.record["name"] == "search" == experiment.name
    first, failed, *live = experiment.trials
    assert (first.id, first.name, first.tag, first.resources) == ("3f2a1_00000", "train_3f2a1_00000", "0_x", {"CPU": 1})
    assert (first.status, first.iterations, first.seconds, first.reason) == ("terminated", 2, 1.0, "it returned")
    assert first.metrics is not None and first.metrics["loss"] == 0.5 and first.checkpoint == "checkpoint_000001"
    assert (failed.status, failed.error, failed.metrics) == ("error", "KeyError: 'x' at script.py:10", None)
    assert [trial.number for trial in live] == [waits, runs, paused]
    assert [trial.status for trial in live] == ["pending", "running", "paused"]
    assert live[2].config == {"lr": 0.6} and live[2].reason == "others come first"


def test_trials_of_an_experiment_that_is_over_are_unfinished_without_an_end(storage: Path) -> None:
    builder = Builder(storage, status="stopped")
    for state in ("made", "started", "paused"):
        number = builder.make({})
        if state != "made":
            builder.event("started", number)
        if state == "paused":
            builder.event("paused", number, reason="")
    assert [trial.status for trial in builder.read().trials] == ["unfinished"] * 3


def test_the_last_end_of_a_trial_that_was_run_again_counts(storage: Path) -> None:
    builder = Builder(storage, status="running")
    number = builder.trial({"lr": 1}, status="error", error="OSError", reason="it failed")
    builder.event("started", number)
    again = builder.read().trials[0]
    assert (again.status, again.error) == ("running", None)
    builder.end(number, builder.row(number, {"lr": 1}, 3, {"loss": 0.1}), 3)
    ended = builder.read().trials[0]
    assert (ended.status, ended.error, ended.iterations) == ("terminated", None, 3)
    assert builder.grid().num_errors == 0


def test_torn_lines_count_as_not_written(storage: Path) -> None:
    builder = Builder(storage)
    builder.trial({"lr": 1}, {"loss": 1.0})
    with (builder.path / "trials.jsonl").open("a") as file:
        file.write('{"event": "made", "trial": 1, "id": \n')
        file.write('{"event": "started", "trial": 7}\n[]\n')
        file.write('{"event": "ended", "at": 2.0, "trial": 0, "status": "err')
    (trial,) = builder.read().trials
    assert trial.status == "terminated"


def test_lines_of_any_content_in_any_order_are_no_error(storage: Path) -> None:
    """STORED-2: each field of each line holds each kind of value once, then the lines are shuffled."""
    builder = Builder(storage)
    for number in range(3):
        builder.trial({"lr": number}, {"loss": 1.0 + number})
    path = builder.path / "trials.jsonl"
    lines = path.read_text().splitlines()
    for line in lines:
        for field in json.loads(line):
            for value in ({"a": 1}, [1], "x", 7.5, True, None, -3, 99999999999):
                path.write_text("\n".join([*lines, json.dumps({**json.loads(line), field: value})]) + "\n")
                trials = builder.read().trials
                assert [trial.number for trial in trials if trial.number in range(3)] == [0, 1, 2]
                assert all(isinstance(trial.config, dict) and isinstance(trial.id, str) for trial in trials)
    foreign = [
        '{"trial":{"a":1},"event":"made"}',
        '{"trial":9,"event":"made","id":[]}',
        '{"trial":8,"event":"started"}',
        "7",
    ]
    chance = random.Random(5)
    for _ in range(20):
        path.write_text("\n".join(chance.sample([*lines, *lines, *foreign], 2 * len(lines) + len(foreign))) + "\n")
        experiment = builder.read()
        assert experiment.unreadable == len(foreign)
        ends = [(trial.number, trial.status, trial.metrics and trial.metrics["loss"]) for trial in experiment.trials]
        assert ends == [(0, "terminated", 1.0), (1, "terminated", 2.0), (2, "terminated", 3.0)]


def test_an_experiment_without_trials_is_empty(storage: Path) -> None:
    builder = Builder(storage)
    os.remove(builder.path / "trials.jsonl")
    grid = builder.grid()
    assert len(grid) == 0 and list(grid) == [] and grid.errors == [] and len(grid.get_dataframe()) == 0
    with pytest.raises(NotFoundError, match="no trial has reported the metric `loss`, or any other"):
        grid.get_best_result()


def test_a_directory_that_is_none_says_what_it_is(storage: Path) -> None:
    builder = Builder(storage, "digits")
    builder.trial({}, {"loss": 1.0})
    with pytest.raises(NotFoundError, match="`/nowhere` does not exist"):
        read_experiment("/nowhere")
    with pytest.raises(NotFoundError, match=r"no `experiment.json`\nhint: it holds the experiments `digits`"):
        read_experiment(storage)
    with pytest.raises(NotFoundError, match=r"hint: it is the directory of a trial; its experiment is `.*/digits`"):
        read_experiment(builder.path / builder.directory(0))
    with pytest.raises(NotFoundError, match="`/` is not the directory of an experiment"):
        read_experiment("/")
    (storage / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"hint: an experiment's directory is its `storage_path` and its name"):
        read_experiment(storage / "empty")


def test_an_experiment_in_a_file_system_of_pyarrow_and_by_uri(storage: Path) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    losses(Builder(storage), [1.0, 0.5], [0.9, 0.8])
    filesystem = SubTreeFileSystem(str(storage), LocalFileSystem())
    grid = ResultGrid.of(read_experiment("search", filesystem))
    assert grid.filesystem is filesystem and grid.experiment_path == "search" and grid[0].path is not None
    assert best(grid) == 0 and best(grid, scope="all", mode="max") == 0, "the second one reads the trials' files"
    assert list(grid[1].metrics_dataframe["loss"]) == [0.9, 0.8]
    assert best(ResultGrid.of(read_experiment(f"file://{storage}/search"))) == 0


def test_ten_thousand_trials_are_read_in_well_under_a_second(storage: Path) -> None:
    builder = Builder(storage)
    config = {"lr": 0.1, "batch": 32, "net": {"depth": 3}}
    with (builder.path / "trials.jsonl").open("w") as builder._trials:
        for number in range(10_000):
            builder.make({**config, "lr": number})
            builder.event("started", number)
            builder.event("told", number, score=1.0)
            builder.end(number, builder.row(number, config, 3, {"loss": 1 / (number + 1), "deep": {"er": 1}}), 3)
    began = time.process_time()
    grid = builder.grid()
    assert best(grid) == 9_999
    # Of the processor alone: other work may be on the machine. No directory of a trial exists, so none was looked at.
    assert time.process_time() - began < 1.0
    assert (len(grid), grid.num_terminated, grid.num_errors) == (10_000, 10_000, 0)


def test_the_grid_is_a_sequence_of_results(storage: Path) -> None:
    grid = losses(Builder(storage), [1.0, 0.5], [0.9])
    assert len(grid) == 2 and [result.metrics and result.metrics["loss"] for result in grid] == [0.5, 0.9]
    assert grid[-1] is grid[1] and grid[:1] == [grid[0]] and isinstance(grid[0], Result)
    with pytest.raises(IndexError):
        grid[2]
    metrics = grid[0].metrics
    assert metrics is not None and metrics["training_iteration"] == 2
    with pytest.raises(KeyError, match="no metric `f1` was reported; there are `loss`"):
        metrics["f1"]
    assert grid[0].config == {"lr": 0} and grid[0].path == str(storage / "search" / "train_3f2a1_00000_0")
    assert list(grid[0].metrics_dataframe["loss"]) == [1.0, 0.5]
    assert grid.experiment_path == str(storage / "search")
    assert repr(grid) == f"ResultGrid(2 trials, 0 error, path='{storage}/search')"
    assert repr(grid[1]).startswith("Result(metrics={'loss': 0.9}, path=")


def test_an_experiment_can_be_moved(storage: Path) -> None:
    builder = Builder(storage)
    losses(builder, [1.0], [0.5, 0.25])
    moved = storage / "elsewhere" / "renamed"
    shutil.move(builder.path, moved)
    grid = ResultGrid.of(read_experiment(moved))
    assert grid.get_best_result().path == str(moved / "train_3f2a1_00001_1")
    assert best(grid, scope="avg") == 1


@pytest.mark.parametrize(
    ("scope", "mode", "expected"),
    [
        # 0: 9 then 5 (last 5, mean 7); 1: 1 then 6 (3.5); 2: 4, 4 (4).
        ("last", "min", 2),
        ("last", "max", 1),
        ("all", "min", 1),
        ("all", "max", 0),
        ("avg", "min", 1),
        ("avg", "max", 0),
        ("last-1-avg", "max", 1),
        ("last-5-avg", "min", 1),
    ],
)
def test_a_scope_says_which_value_of_a_trial_counts(storage: Path, scope: str, mode: str, expected: int) -> None:
    grid = losses(Builder(storage), [9.0, 5.0], [1.0, 6.0], [4.0, 4.0])
    assert best(grid, "loss", mode, scope) == expected


def test_the_last_five_and_ten_are_the_last_ones(storage: Path) -> None:
    long = [100.0] * 5 + [3.0] * 5 + [1.0] * 5
    grid = losses(Builder(storage), long, [2.5] * 15)
    assert best(grid, scope="last-5-avg") == 0, "1 against 2.5"
    assert best(grid, scope="last-10-avg") == 0, "2 against 2.5"
    assert best(grid, scope="avg") == 1, "34.7 against 2.5"


def test_nan_and_infinity_are_not_the_best(storage: Path) -> None:
    grid = losses(Builder(storage), [NAN], [2.0], [-INFINITY], [0.5, NAN], [3.0])
    assert best(grid) == 1
    assert best(grid, filter_nan_and_inf=False) == 2, "an infinite value counts then, and NaN does not"
    assert best(grid, scope="all") == 3, "what a trial had reached before it diverged counts"
    assert best(grid, scope="avg") == 1


def test_values_that_are_all_nan_leave_no_best(storage: Path) -> None:
    grid = losses(Builder(storage), [NAN], [INFINITY])
    with pytest.raises(NotFoundError, match=r"every value of `loss` is NaN or infinite\nhint: `filter_nan_and_inf=F"):
        grid.get_best_result()
    assert best(grid, filter_nan_and_inf=False) == 1


def test_of_equal_ones_the_first_is_the_best(storage: Path) -> None:
    grid = losses(Builder(storage), [2.0], [1.0], [1.0])
    assert best(grid) == 1 and best(grid, "loss", "max") == 0 and best(grid, "training_iteration", "max") == 0


def test_a_single_trial_is_the_best_without_a_metric(storage: Path) -> None:
    builder = Builder(storage, metric=None, mode=None)
    builder.trial({"lr": 0})
    assert best(builder.grid()) == 0
    assert ExperimentAnalysis(builder.path).best_config == {"lr": 0}


def test_without_a_metric_the_way_to_give_one_is_said(storage: Path) -> None:
    builder = Builder(storage, metric=None, mode=None)
    grid = losses(builder, [1.0], [0.5])
    with pytest.raises(ConfigError, match=r"no metric to judge the trials by\nhint: give it here: `get_best_result\("):
        grid.get_best_result()
    with pytest.raises(ConfigError, match="`mode` is None: it must be 'min' or 'max'"):
        grid.get_best_result("loss")
    with pytest.raises(ConfigError, match="`mode` is 'least': it must be"):
        grid.get_best_result("loss", "least")
    with pytest.raises(ConfigError, match="`scope` is 'first': it must be 'last', 'all', 'avg', 'last-5-avg'"):
        grid.get_best_result("loss", "min", "first")
    assert best(grid, "loss", "min") == 1


def test_a_metric_that_no_trial_reports_is_an_error_that_names_the_ones_there_are(storage: Path) -> None:
    builder = Builder(storage, metric="accurracy", mode="max")
    for lr in (0, 1):
        builder.trial({"lr": lr}, {"loss": 1.0, "eval": {"accuracy": 0.5}, "word": "a"}, {"loss": 2.0})
    builder.trial({"lr": 2}, {"accuracy": 0.25, "eval": {"accuracy": 0.75}, "word": "a"})
    grid = builder.grid()
    with pytest.raises(RuntimeError) as caught:
        grid.get_best_result()
    assert str(caught.value) == (
        "no trial has reported the metric `accurracy`; there are `accuracy`, `eval/accuracy`, `loss`, `word`\n"
        "hint: did you mean `accuracy`?"
    )
    with pytest.raises(NotFoundError, match="no trial can be judged by `word`: it is 'a', which is not a number"):
        grid.get_best_result("word")
    assert best(grid, "eval/accuracy", "max") == 2
    assert best(grid, "eval/accuracy", "min") == 0, "the last value of a metric need not be in the last result"


def test_where_every_trial_failed_the_missing_metric_says_so(storage: Path) -> None:
    builder = Builder(storage)
    for lr in (0, 1):
        builder.trial({"lr": lr}, status="error", error="KeyError: 'x'")
    with pytest.raises(NotFoundError, match=r"or any other\nhint: 2 of 2 failed: `ResultGrid.errors` says why"):
        builder.grid().get_best_result()


def test_trials_that_failed_are_counted_and_their_errors_told(storage: Path) -> None:
    builder = Builder(storage)
    builder.trial({"lr": 0}, {"loss": 1.0})
    builder.trial({"lr": 1}, {"loss": 0.5}, status="error", error="KeyError: 'x' at script.py:10")
    builder.make({"lr": 2})
    grid = builder.grid()
    assert (grid.num_errors, grid.num_terminated) == (1, 1)
    (error,) = grid.errors
    assert str(error) == f"KeyError: 'x' at script.py:10\nhint: `{grid[1].path}/error.txt` has the whole"
    assert grid[1].error is error and grid[0].error is None and grid[2].error is None
    assert best(grid) == 1, "a trial that failed counts for what it had reached"


def test_what_the_driver_knows_better_than_the_files_is_taken(storage: Path) -> None:
    builder = Builder(storage)
    builder.trial({"lr": 0, "activation": "<function relu>"}, status="error", error="KeyError: 'x'")
    given, raised = {"lr": 0, "activation": math.tanh, 3: "odd"}, KeyError("x")
    grid = ResultGrid.of(builder.read(), configs={0: given}, errors={0: raised})
    assert grid[0].config is given and grid.errors == [raised]
    frame = grid.get_dataframe()
    assert frame["config/activation"][0] is math.tanh and frame["config/3"][0] == "odd"


def test_an_unfinished_trial_has_what_its_directory_tells(storage: Path) -> None:
    builder = Builder(storage, status="running")
    builder.trial({"lr": 0}, {"loss": 1.0})
    number = builder.make({"lr": 1})
    builder.event("started", number)
    directory = builder.path / builder.directory(number)
    directory.mkdir()
    rows = [builder.row(number, {"lr": 1}, at, {"loss": 0.5 / at}) for at in (1, 2)]
    (directory / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"loss": ')
    builder.make({"lr": 2})
    grid = builder.grid()
    assert grid[1].metrics is not None and grid[1].metrics["loss"] == 0.25 and best(grid) == 1
    assert grid[2].metrics == {} and grid[2].checkpoint is None and grid[2].best_checkpoints == []


def test_the_dataframe_has_a_row_per_trial(storage: Path) -> None:
    builder = Builder(storage)
    builder.trial({"lr": 0.1, "net": {"depth": 2}}, {"loss": 0.5, "deep": {"er": 1}}, {"loss": 0.75, "deep": {"er": 2}})
    builder.trial({"lr": 0.2, "net": {"depth": 3}}, {"loss": NAN}, {"loss": 0.25})
    builder.trial({"lr": 0.3, "net": {"depth": 4}}, status="error", error="KeyError")
    grid = builder.grid()
    frame = grid.get_dataframe()
    assert list(frame["config/lr"]) == [0.1, 0.2, 0.3] and list(frame["config/net/depth"]) == [2, 3, 4]
    assert list(frame["loss"][:2]) == [0.75, 0.25] and math.isnan(frame["loss"][2])
    assert frame["deep/er"][0] == 2 and frame["training_iteration"][0] == 2
    assert list(frame["logdir"]) == [result.path for result in grid]
    assert list(frame["trial_id"]) == ["3f2a1_00000", "3f2a1_00001", "3f2a1_00002"]
    assert not [name for name in frame.columns if name == "config"]
    least, most = grid.get_dataframe("loss", "min"), grid.get_dataframe(filter_metric="loss", filter_mode="max")
    assert list(least["loss"][:2]) == [0.5, 0.25] and list(least["training_iteration"][:2]) == [1, 2]
    assert list(most["loss"][:2]) == [0.75, 0.25] and list(grid.get_dataframe("loss")["loss"][:2]) == [0.5, 0.25]
    with pytest.raises(NotFoundError, match="no trial has reported the metric `f1`"):
        grid.get_dataframe("f1", "max")


def test_results_of_any_kind_make_a_grid() -> None:
    results = [Result(metrics=None), Result(error=ValueError("x"))]
    grid = ResultGrid(results, metric="loss", mode="min")
    assert (len(grid), grid.num_errors, grid.num_terminated, grid.experiment_path) == (2, 1, 1, None)
    assert [str(error) for error in grid.errors] == ["x"]


def test_a_result_pickles(storage: Path) -> None:
    grid = losses(Builder(storage), [1.0, 0.5], [0.9])
    again = pickle.loads(pickle.dumps(grid))
    assert again[0].metrics == grid[0].metrics and again[0].path == grid[0].path and best(again) == 0
    assert list(again[0].metrics_dataframe["loss"]) == [1.0, 0.5]


@pytest.fixture(scope="module")
def real(head: None, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Three trials that were runs: losses 0.5, 0.25, 0.75 and 0.9, 0.8, 0.7 with a checkpoint each, and one that fails."""

    def function(config: dict[str, Any]) -> None:
        from carril import train

        for step, loss in enumerate(config["losses"]):
            train.report({"loss": loss, "step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
        if config["fails"]:
            raise KeyError("missing")

    builder = Builder(tmp_path_factory.mktemp("real"))
    for series, fails in (([0.5, 0.25, 0.75], False), ([0.9, 0.8, 0.7], False), ([5.0], True)):
        config = {"losses": series, "fails": fails}
        number = builder.make(config)
        builder.event("started", number)
        try:
            run: dict[str, Any] = {"workers": 1, "config": config, "name": builder.directory(number), "verbose": 0}
            result = fit(function, builder.path, **run)
        except RuntimeError:
            result = Result.from_path(builder.path / builder.directory(number))
        assert result.checkpoint is not None
        newest = Path(result.checkpoint.path).name
        end = {"status": "error", "error": "KeyError: 'missing'"} if fails else {}
        builder.end(number, dict(result.metrics or {}), len(series), checkpoint=newest, **end)
    return builder


def test_checkpoints_and_errors_are_read_from_the_trials_directories(real: Builder) -> None:
    grid = real.grid()
    result = grid.get_best_result()
    assert isinstance(result, TrialResult) and result.config["losses"] == [0.9, 0.8, 0.7]
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"step": 2}
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints] == [0, 1, 2]
    chosen = grid[0].get_best_checkpoint("loss", "min")
    assert chosen is not None and chosen.to_dict() == {"step": 1}
    assert best_losses(grid.get_best_result(scope="all")) == [0.5, 0.25, 0.75]
    (error,) = grid.errors
    assert "KeyError: 'missing'" in str(error) and "error.txt" not in str(error), "the headline of error.json"


def best_losses(result: Result) -> list[float]:
    return list(result.metrics_dataframe["loss"])


def test_an_experiment_in_s3_is_read_there(real: Builder, place: Place, s3_variables: None) -> None:
    from carril.train._places import place as opened

    opened(place.uri).upload(str(real.path))
    grid = ResultGrid.of(read_experiment(place.uri))
    result = grid.get_best_result(scope="all")
    assert result.path == f"{place.uri}/{real.directory(0)}" and best_losses(result) == [0.5, 0.25, 0.75]
    assert step(result.checkpoint) == 2 and step(result.get_best_checkpoint("loss", "min")) == 1
    assert ExperimentAnalysis(place.uri).trials[2].error_file == f"{place.uri}/{real.directory(2)}/error.txt"
    with pytest.raises(NotFoundError, match=r"hint: it is the directory of a trial; its experiment is `s3://"):
        read_experiment(str(result.path))
    with pytest.raises(NotFoundError, match=r"`s3://bucket` is not the directory of an experiment"):
        read_experiment("s3://bucket")


def test_the_analysis_has_the_best_of_everything(real: Builder) -> None:
    analysis = ExperimentAnalysis(real.path)
    trial = analysis.best_trial
    assert (analysis.default_metric, analysis.default_mode) == ("loss", "min")
    assert trial.trial_id == "3f2a1_00001" and trial.status == "TERMINATED" and trial.is_finished()
    assert analysis.best_config == trial.config == {"losses": [0.9, 0.8, 0.7], "fails": False}
    assert analysis.best_logdir == trial.logdir == trial.local_path == str(real.path / real.directory(1))
    assert analysis.best_result["loss"] == 0.7 and list(analysis.best_dataframe["loss"]) == [0.9, 0.8, 0.7]
    assert list(analysis.best_result_df.index) == ["3f2a1_00001"] and list(analysis.best_result_df["loss"]) == [0.7]
    assert step(analysis.best_checkpoint) == 2
    assert step(analysis.get_best_checkpoint(analysis.trials[0])) == 1
    assert step(analysis.get_best_checkpoint("3f2a1_00000", "loss", "max")) == 2
    assert step(analysis.get_best_checkpoint(str(real.path / real.directory(0)), "step", "min")) == 0
    assert step(analysis.get_last_checkpoint(analysis.trials[0])) == 2 and step(analysis.get_last_checkpoint()) == 2
    with pytest.raises(NotFoundError, match="no trial of the experiment has the id or the directory `nobody`"):
        analysis.get_best_checkpoint("nobody")


def step(checkpoint: Checkpoint | None) -> int:
    assert checkpoint is not None
    return int(checkpoint.to_dict()["step"])


def test_the_analysis_has_every_trial(real: Builder) -> None:
    analysis = ExperimentAnalysis(str(real.path / "experiment.json"))
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "TERMINATED", "ERROR"]
    assert analysis.trials[2].error_file == str(real.path / real.directory(2) / "error.txt")
    assert os.path.exists(str(analysis.trials[2].error_file)) and analysis.trials[0].error_file is None
    assert {name: result["loss"] for name, result in analysis.results.items()} == {
        "3f2a1_00000": 0.75,
        "3f2a1_00001": 0.7,
        "3f2a1_00002": 5.0,
    }
    assert list(analysis.results_df["loss"]) == [0.75, 0.7, 5.0] and analysis.results_df.index.name == "trial_id"
    assert [len(frame) for frame in analysis.trial_dataframes.values()] == [3, 3, 1]
    assert list(analysis.dataframe("loss", "min")["loss"]) == [0.25, 0.7, 5.0]
    assert list(analysis.dataframe()["loss"]) == [0.75, 0.7, 5.0]
    assert analysis.get_all_configs()["3f2a1_00002"] == {"losses": [5.0], "fails": True}
    assert analysis.get_all_configs(prefix=True)["3f2a1_00002"] == {"config/losses": [5.0], "config/fails": True}
    assert analysis.trials[0].metric_analysis["loss"] == {
        "max": 0.75,
        "min": 0.25,
        "avg": 0.5,
        "last": 0.75,
        "last-5-avg": 0.5,
        "last-10-avg": 0.5,
    }
    stats = analysis.stats()
    assert stats["trials_by_status"] == {"TERMINATED": 2, "ERROR": 1} and stats["start_time"] == 1.0


def test_the_analysis_judges_by_what_it_is_told(real: Builder) -> None:
    analysis = ExperimentAnalysis(real.grid(), default_metric="loss", default_mode="max")
    assert analysis.best_trial.trial_id == "3f2a1_00002"
    assert analysis.get_best_trial("loss", "min", "all").trial_id == "3f2a1_00000"
    assert analysis.get_best_config("loss", "min") == analysis.trials[1].config
    assert analysis.get_best_logdir("loss", "min", "avg") == analysis.trials[0].path
    without = ExperimentAnalysis(real.grid())
    without.default_metric = None
    with pytest.raises(
        ConfigError, match=r"no metric to judge the trials by\nhint: .*`tune.run\(metric='loss', mode='min'\)`"
    ):
        without.best_config  # noqa: B018
    with pytest.raises(ConfigError, match="`default_mode` is 'best': it must be 'min' or 'max'"):
        ExperimentAnalysis(real.path, "loss", "best")
