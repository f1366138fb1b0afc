"""What `fit()` returns: metrics with the automatic fields, checkpoints in order, tables, and the same from the files."""

import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runs import fit, lines

from carril.exceptions import ConfigError, NotFoundError, TrainingFailedError
from carril.train import Checkpoint, CheckpointConfig, Result, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")

AUTOMATIC = (
    "training_iteration",
    "_training_iteration",
    "time_this_iter_s",
    "_time_this_iter_s",
    "time_total_s",
    "time_since_restore",
    "iterations_since_restore",
    "timesteps_total",
    "timesteps_since_restore",
    "episodes_total",
    "warmup_time",
    "timestamp",
    "_timestamp",
    "date",
    "pid",
    "hostname",
    "node_ip",
    "trial_id",
    "experiment_id",
    "experiment_tag",
    "done",
    "config",
)


@pytest.fixture(scope="module")
def result(head: None, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Four reports of two ranks, three of them with a checkpoint, and a value that is returned."""

    def function(config: dict[str, Any]) -> dict[str, Any]:
        import os
        import time

        from carril import train

        rank = train.get_context().get_world_rank()
        for step, loss in enumerate((0.5, float("nan"), 0.25, 0.75)):
            time.sleep(0.02)
            checkpoint = train.Checkpoint.from_dict({"step": step}) if rank == 0 and step < 3 else None
            train.report({"loss": loss, "step": step, "deep": {"er": step}}, checkpoint=checkpoint)
        return {"pid": os.getpid(), "id": train.get_context().get_run_id(), "lr": config["lr"]}

    return fit(
        function,
        tmp_path_factory.mktemp("result"),
        config={"lr": 0.1, "layers": [1, 2]},
        name="whole",
        checkpoint_config=CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order="min"),
    )


def test_metrics_are_the_last_report_with_every_automatic_field(result: Result) -> None:
    metrics = result.metrics
    assert metrics is not None
    # The last two are there because checkpoints were reported.
    assert set(metrics) == {"loss", "step", "deep", *AUTOMATIC, "checkpoint_stall_s", "checkpoint_upload_s"}
    assert (metrics["loss"], metrics["step"], metrics["deep"]) == (0.75, 3, {"er": 3})
    assert metrics["training_iteration"] == metrics["_training_iteration"] == metrics["iterations_since_restore"] == 4
    assert metrics["config"] == {"lr": 0.1, "layers": [1, 2]} == result.config
    assert metrics["done"] is True and metrics["timesteps_total"] is None and metrics["experiment_tag"] == "0"
    assert metrics["_timestamp"] == metrics["timestamp"] and metrics["_time_this_iter_s"] == metrics["time_this_iter_s"]
    assert metrics["timesteps_since_restore"] == 0 and metrics["episodes_total"] is None
    assert metrics["pid"] == result.return_value["pid"]
    assert metrics["experiment_id"] == result.return_value["id"]
    assert metrics["trial_id"] == f"{metrics['experiment_id'][:5]}_00000"


def test_the_automatic_times_are_of_this_run(result: Result) -> None:
    import socket

    metrics = result.metrics
    assert metrics is not None
    assert metrics["hostname"] == socket.gethostname() and metrics["node_ip"].count(".") == 3
    assert time.time() - 600 < metrics["timestamp"] <= time.time() and type(metrics["timestamp"]) is int
    made = time.mktime(time.strptime(metrics["date"], "%Y-%m-%d_%H-%M-%S"))
    assert abs(made - metrics["timestamp"]) <= 1
    assert 0 < metrics["warmup_time"] < 60
    rows = lines(Path(str(result.path), "result.json"))
    totals = [row["time_total_s"] for row in rows]
    assert all(0.02 <= row["time_this_iter_s"] < 10 for row in rows)
    assert totals == sorted(totals) and totals[-1] == pytest.approx(sum(row["time_this_iter_s"] for row in rows))
    assert [row["time_since_restore"] for row in rows] == totals


def test_a_user_s_key_wins_over_an_automatic_one(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"done": False, "pid": "mine", "config": {"a": 1}, "training_iteration": 77, "timestamp": None})

    result = fit(function, storage, workers=1, config={"lr": 1})
    expected = {"done": False, "pid": "mine", "config": {"a": 1}, "training_iteration": 77, "timestamp": None}
    for metrics in (result.metrics, lines(Path(str(result.path), "result.json"))[0]):
        assert metrics is not None and {key: metrics[key] for key in expected} == expected
        assert metrics["_training_iteration"] == 1


def test_a_missing_metric_is_a_key_error_that_lists_the_ones_there_are(result: Result) -> None:
    assert result.metrics is not None
    with pytest.raises(KeyError) as caught:
        result.metrics["accuracy"]
    assert str(caught.value) == "no metric `accuracy` was reported; there are `loss`, `step`, `deep`"
    assert result.metrics.get("accuracy") is None and "accuracy" not in result.metrics


def test_checkpoints_are_in_ascending_order_with_the_best_last(result: Result) -> None:
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints] == [1, 0, 2]
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [1, 0, 2]
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"step": 2}
    assert result.checkpoint.path == str(Path(str(result.path), "checkpoint_000002"))


def test_the_best_checkpoint_can_be_asked_for_by_another_metric(result: Result) -> None:
    def step(metric: str, mode: str) -> int:
        best = result.get_best_checkpoint(metric, mode)
        assert best is not None
        return int(best.to_dict()["step"])

    assert (step("loss", "min"), step("loss", "max")) == (2, 0), "NaN is worst in both modes"
    assert (step("deep/er", "min"), step("deep/er", "max")) == (0, 2)
    with pytest.raises(NotFoundError, match=r"no checkpoint has the metric `f1`; there are .*deep/er.*loss.*step"):
        result.get_best_checkpoint("f1", "max")
    with pytest.raises(ConfigError, match="`mode` is 'best': it must be 'max' or 'min'"):
        result.get_best_checkpoint("loss", "best")


def test_a_run_without_checkpoint_has_none_to_give(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"loss": 1})

    result = fit(function, storage, workers=1)
    assert result.checkpoint is None and result.best_checkpoints == []
    with pytest.raises(RuntimeError, match="the run has no checkpoint"):
        result.get_best_checkpoint("loss", "min")


def test_a_run_that_reports_and_returns_nothing_has_no_metrics(storage: Path) -> None:
    def function() -> None:
        pass

    result = fit(function, storage)
    assert result.metrics is None and result.return_value is None and result.error is None
    assert result.rank_metrics(0) == []
    with pytest.raises(NotFoundError, match="rank 1 has reported nothing, or there was none"):
        result.rank_metrics(1)


def test_the_data_frame_has_one_row_per_report_and_flat_columns(result: Result) -> None:
    table = result.metrics_dataframe
    assert list(table["step"]) == [0, 1, 2, 3] == list(table["deep/er"])
    assert list(table["training_iteration"]) == [1, 2, 3, 4]
    assert table["loss"].isna().tolist() == [False, True, False, False]
    assert table["config/lr"].tolist() == [0.1] * 4


def test_without_pandas_the_data_frame_says_what_is_missing(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ImportError, match="`metrics_dataframe` needs pandas, which is not installed\nhint: `pip install"
    ):
        _ = result.metrics_dataframe
    assert len(result.rank_metrics(0)) == 4


def test_path_and_log_dir_are_the_run_s_directory(result: Result) -> None:
    assert result.path is not None and result.log_dir == Path(result.path)
    assert result.log_dir.name == "whole" and (result.log_dir / "run.json").is_file()


def test_a_result_survives_pickling(result: Result) -> None:
    copy = pickle.loads(pickle.dumps(result))
    assert copy.metrics == result.metrics and copy.path == result.path and copy.return_value == result.return_value
    assert [checkpoint.path for checkpoint, _ in copy.best_checkpoints] == [c.path for c, _ in result.best_checkpoints]
    with pytest.raises(KeyError, match="there are `loss`"):
        copy.metrics["none"]


def test_the_notebook_s_table_shows_the_user_s_metrics_escaped(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"loss": 0.125, "note": "<b>&"})

    html = fit(function, storage, workers=1)._repr_html_()
    assert "0.125" in html and "&lt;b&gt;&amp;" in html and "<b>" not in html and "training_iteration" not in html


def test_from_path_reads_the_same_result_back(result: Result) -> None:
    again = Result.from_path(str(result.path))
    assert again.metrics is not None and result.metrics is not None
    for key in ("loss", "step", "deep", "config", "pid", "experiment_id", "training_iteration", "date"):
        assert again.metrics[key] == result.metrics[key], key
    assert again.error is None and again.return_value is None and again.path == result.path
    assert [c.path for c, _ in again.best_checkpoints] == [c.path for c, _ in result.best_checkpoints]
    assert again.checkpoint is not None and again.checkpoint.to_dict() == {"step": 2}
    assert [metrics["step"] for _, metrics in again.best_checkpoints] == [1, 0, 2]
    assert len(again.rank_metrics(1)) == 4 and len(again.metrics_dataframe) == 4


def test_from_path_of_a_failed_run_has_its_error_and_what_was_reported(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"loss": 1.0}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        raise ValueError("no more")

    with pytest.raises(WorkerGroupError):
        fit(function, storage, workers=1, name="failed")
    result = Result.from_path(storage / "failed")
    assert result.metrics is not None and result.metrics["loss"] == 1.0 and result.metrics["done"] is False
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"a": 1}
    error = result.error
    assert isinstance(error, TrainingFailedError)
    assert str(error).startswith("rank 0 failed: ValueError: no more at ")
    assert (error.code, error.origin, error.retryable) == ("user-exception", "user", True)


def test_from_path_says_what_is_no_run(storage: Path) -> None:
    with pytest.raises(RuntimeError, match=r"is not the directory of a run: it has no `run\.json`\nhint: "):
        Result.from_path(storage)
    with pytest.raises(ConfigError, match="`path` is `hdfs://h/run`: there is no storage for `hdfs://`"):
        Result.from_path("hdfs://h/run")
    with pytest.raises(ConfigError, match="`storage_filesystem` is an object: it must be a file system of pyarrow"):
        Result.from_path(storage, storage_filesystem=object())


def test_a_directory_without_a_manifest_is_no_checkpoint(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"x": 1}, checkpoint=train.Checkpoint.from_dict({}))

    result = fit(function, storage, workers=1)
    half = Path(str(result.path), "checkpoint_000001")
    half.mkdir()
    (half / "model.bin").write_text("half")
    again = Result.from_path(str(result.path))
    assert again.checkpoint is not None and again.checkpoint.path.endswith("checkpoint_000000")
    assert json.loads(Path(again.checkpoint.path, ".manifest.json").read_text())["ranks"] == [0]


def test_the_value_that_rank_0_returns_may_be_anything_that_pickles(storage: Path) -> None:
    def function() -> Any:
        import carril.train

        class Own:
            def __init__(self, value: int) -> None:
                self.value = value

        rank = carril.train.get_context().get_world_rank()
        return Own(41 + 1) if rank == 0 else (lambda: "not looked at")

    assert fit(function, storage).return_value.value == 42


def test_a_value_that_cannot_be_sent_is_an_error_that_says_so(storage: Path) -> None:
    def function() -> Any:
        import threading

        return threading.Lock()

    with pytest.raises(WorkerGroupError, match=r"what rank 0 returned, a lock, cannot be sent to the driver"):
        fit(function, storage, workers=1)


def test_a_checkpoint_can_be_returned(storage: Path) -> None:
    def function() -> Checkpoint:
        from carril import train

        return train.Checkpoint.from_dict({"weights": [1, 2]})

    assert fit(function, storage, workers=1).return_value.to_dict() == {"weights": [1, 2]}
