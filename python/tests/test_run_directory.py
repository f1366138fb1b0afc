"""The files of a run: what is where, that people, Python, spreadsheets and TensorBoard can read it."""

import csv
import dataclasses
import json
import math
import socket
import zlib
from pathlib import Path
from typing import Any

import pytest
from runs import fit, lines

import carril
from carril.train import Result, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")


@pytest.fixture(scope="module")
def run(head: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metrics that change their keys, with NaN and infinity, and output on both streams."""

    def function(config: dict[str, Any]) -> None:
        import sys

        from carril import train

        rank = train.get_context().get_world_rank()
        print(f"out of {rank}")
        print(f"err of {rank}", file=sys.stderr)
        train.report({"loss": 1.0, "text": 'a "b", c\nd', "flag": True})
        given = train.Checkpoint.from_dict({"a": 1}) if rank == 0 else None
        train.report({"loss": float("nan"), "late": 2**70, "deep": {"er": float("-inf")}}, checkpoint=given)
        train.report({"loss": float("inf"), "other": "x"})

    storage = tmp_path_factory.mktemp("directory")
    config = {"lr": 0.1, "nan": float("nan"), "f": len, "nested": {"a": [1, None]}}
    return Path(str(fit(function, storage, config=config, name="whole").path))


def test_the_directory_holds_exactly_these_files(run: Path) -> None:
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    events = [name for name in names if name.startswith("events.out.tfevents.")]
    assert len(events) == 1
    assert [name for name in names if name not in events] == [
        "checkpoint_000000/.manifest.json",
        "checkpoint_000000/dict_checkpoint.pkl",
        "function.pkl",
        "journal/000000.log",
        "journal/epoch_000001",
        "params.json",
        "progress.csv",
        "ranks/rank_0.attempt_0.log",
        "ranks/rank_1.attempt_0.log",
        "ranks/rank_1.json",
        "result.json",
        "run.json",
        "trainer.pkl",
    ]


def test_run_json_says_what_was_asked_by_whom_and_how_it_ended(run: Path) -> None:
    import socket
    import sys

    record = json.loads((run / "run.json").read_text())
    assert (record["name"], record["status"], record["carril_version"]) == ("whole", "finished", carril.__version__)
    assert record["started"] <= record["ended"] and record["owner"]["host"] == socket.gethostname()
    asked = record["asked"]
    assert (asked["trainer"], asked["python"]) == ("DataParallelTrainer", sys.executable)
    assert asked["function"].endswith("function") and asked["versions"]["carril"] == carril.__version__
    assert asked["scaling_config"]["num_workers"] == 2
    assert asked["run_config"]["storage_path"] == str(run.parent)
    fields = {field.name for field in dataclasses.fields(carril.train.ScalingConfig)}
    assert set(asked["scaling_config"]) == fields


def test_params_json_is_the_config_with_reprs_for_objects(run: Path) -> None:
    params = json.loads((run / "params.json").read_text())
    assert math.isnan(params.pop("nan"))
    assert params == {"lr": 0.1, "f": "<built-in function len>", "nested": {"a": [1, None]}}


def test_result_json_has_one_object_per_report_and_keeps_nan_and_infinity(run: Path) -> None:
    text = (run / "result.json").read_text()
    assert '"loss": NaN' in text and '"loss": Infinity' in text and '"er": -Infinity' in text
    first, second, third = lines(run / "result.json")
    assert first["loss"] == 1.0 and math.isnan(second["loss"]) and third["loss"] == math.inf
    assert first["text"] == 'a "b", c\nd' and second["late"] == 2**70 and second["deep"] == {"er": -math.inf}
    assert "late" not in first and third["other"] == "x"
    assert second["checkpoint_dir_name"] == "checkpoint_000000" and "checkpoint_dir_name" not in third
    assert first["config"]["lr"] == third["config"]["lr"] == 0.1


def test_a_new_key_widens_progress_csv_and_old_rows_stay(run: Path) -> None:
    with open(run / "progress.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 and all(None not in row and None not in row.values() for row in rows)
    assert [row["loss"] for row in rows] == ["1.0", "nan", "inf"]
    assert [row["text"] for row in rows] == ['a "b", c\nd', "", ""]
    assert [row["late"] for row in rows] == ["", str(2**70), ""]
    assert [row["deep/er"] for row in rows] == ["", "-inf", ""] and [row["other"] for row in rows] == ["", "", "x"]
    assert [row["training_iteration"] for row in rows] == ["1", "2", "3"]
    assert not any(name.startswith("config") for name in rows[0])


def test_pandas_reads_both_files_to_the_same_numbers(run: Path) -> None:
    import pandas

    by_csv = pandas.read_csv(run / "progress.csv")
    by_result = Result.from_path(run).metrics_dataframe
    assert by_csv["loss"].tolist()[::2] == by_result["loss"].tolist()[::2] == [1.0, math.inf]
    assert by_csv["time_total_s"].tolist() == by_result["time_total_s"].tolist()


def test_tensorboard_reads_every_number_under_its_flattened_name(run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run))
    board.Reload()
    tags = board.Tags()["scalars"]
    assert {"loss", "flag", "late", "deep/er"} <= set(tags) and "text" not in tags
    losses = board.Scalars("loss")
    assert [event.step for event in losses] == [1, 2, 3]
    assert losses[0].value == 1.0 and math.isnan(losses[1].value) and losses[2].value == math.inf
    stamps = [row["timestamp"] for row in lines(run / "result.json")]
    assert [int(event.wall_time) for event in losses] == stamps
    assert board.Scalars("late")[0].value == pytest.approx(2.0**70)


def test_the_other_ranks_reports_and_every_rank_s_output_are_kept(run: Path) -> None:
    rows = lines(run / "ranks" / "rank_1.json")
    assert [row["training_iteration"] for row in rows] == [1, 2, 3] and rows[2]["loss"] == math.inf
    for rank in range(2):
        output = (run / "ranks" / f"rank_{rank}.attempt_0.log").read_text()
        assert output.splitlines() == [f"out of {rank}", f"err of {rank}"]


def _journal(run: Path) -> list[dict[str, Any]]:
    records = []
    for line in (run / "journal" / "000000.log").read_text().splitlines():
        checksum, _, text = line.partition(" ")
        assert int(checksum, 16) == zlib.crc32(text.encode()), "every line has its checksum"
        records.append(json.loads(text))
    return records


def test_the_journal_tells_what_was_decided_and_why_with_checksums(run: Path) -> None:
    records = _journal(run)
    events = [record["event"] for record in records]
    assert events[:3] == ["Opened", "Placed", "AttemptBegun"]
    assert "StartGroup: attempt 1, after report 0" in records[1]["commands"]
    facts = [record["fact"] for record in records if "fact" in record]
    begun = {"attempt": 0, "nodes": ["local"], "host": socket.gethostname()}
    assert facts == [{"opened": {"continues": False}}, {"attempt_begun": begun}]
    for event in ("WorkerStarted: rank 1", "WorkerReady: rank 0", "WorkerReturned: rank 1"):
        assert event in events
    assert any(event.startswith("CheckpointCommitted: report 2") for event in events)
    assert not any("Reported" in event for event in events), "reports are not in it"
    assert records[-1]["commands"] == ["EndRun: finished, finished"]
    times = [record["at"] for record in records]
    assert times == sorted(times)


def test_a_failed_run_s_journal_and_error_files_name_the_cause(storage: Path) -> None:
    def function() -> None:
        raise ValueError("the cause")

    with pytest.raises(WorkerGroupError):
        fit(function, storage, workers=1, name="failed")
    run = storage / "failed"
    headline = (run / "error.txt").read_text().splitlines()[0]
    assert headline.startswith("rank 0 failed: ValueError: the cause at ")
    assert "Traceback (most recent call last)" in (run / "error.txt").read_text()
    records = _journal(run)
    assert records[-1]["commands"] == [f"EndRun: failed, {headline}"]
    assert any(record["event"] == f"WorkerFailed: {headline}" for record in records)


def test_a_run_without_reports_has_no_event_file_and_empty_ones_beside_it(storage: Path) -> None:
    def function() -> None: ...

    run = Path(str(fit(function, storage, workers=1).path))
    assert (run / "result.json").read_text() == "" and (run / "progress.csv").read_text() == ""
    assert not list(run.glob("events.out*"))
    assert json.loads((run / "params.json").read_text()) == {}
