"""Runs that are kept in S3: what is in the bucket, who can read it, and that a run goes on from it on an empty disk.

The server is a real one (`s3_server`). What is in the bucket is read from the server's own disk.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground, committed_steps, manifest_of, saves, step_of
from conftest import wait_until
from driver_scripts import Scripts, scripts_fixture  # noqa: F401
from runs import fit, trainer
from s3_server import Place, S3Server, place_fixture, s3_fixture, s3_variables_fixture  # noqa: F401

from carril.exceptions import CheckpointError, RunExistsError
from carril.train import Checkpoint, CheckpointConfig, ControllerError, Result, RunConfig, WorkerGroupError

pytestmark = pytest.mark.usefixtures("s3_variables", "head")

# A driver as a user has it in a file; what it prints is read by the test.
SCRIPT = """
    import os, sys, time
    import carril
    from carril import train

    def loop(config):
        rank = train.get_context().get_world_rank()
        latest = train.get_checkpoint()
        begin = latest.to_dict()["step"] + 1 if latest else 0
        if rank == 0:
            print(f"begin={begin}", flush=True)
        for step in range(begin, config["steps"]):
            given = train.Checkpoint.from_dict({"step": step}) if rank == 0 else None
            train.report({"step": step}, checkpoint=given)
        train.collective.barrier()
        if rank == 0:
            print(f"pid={os.getpid()}", flush=True)
        while config["wait"]:
            time.sleep(0.01)

    if __name__ == "__main__":
        carril.init(num_cpus=4)
        result = train.DataParallelTrainer(
            loop,
            train_loop_config={"steps": int(sys.argv[2]), "wait": sys.argv[3] == "wait"},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                name="cut",
                storage_path=sys.argv[1],
                resume=True,
                failure_config=train.FailureConfig(max_infrastructure_failures=0),
            ),
        ).fit()
        print("kept", [metrics["step"] for _, metrics in result.best_checkpoints], flush=True)
"""


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    """Another machine, as far as a script can tell: a home and a temporary directory with nothing in them."""
    made = Scripts(tmp_path_factory.mktemp("elsewhere"))
    yield made
    made.close()


def test_the_bucket_holds_the_files_of_the_run_and_of_every_checkpoint(s3: S3Server, place: Place) -> None:
    result = fit(saves(), place.uri, config={"steps": 2}, name="whole")
    events = [key for key in place.objects() if key.startswith("whole/events.out.tfevents.")]
    assert len(events) == 1
    checkpoint = [".manifest.json", "shards/0", "shards/1", "step"]
    assert [key for key in place.objects() if key not in events] == [
        *(f"whole/checkpoint_000000/{name}" for name in checkpoint),
        *(f"whole/checkpoint_000001/{name}" for name in checkpoint),
        "whole/function.pkl",
        "whole/journal/000000.log",
        "whole/journal/epoch_000001",
        "whole/params.json",
        "whole/progress.csv",
        "whole/ranks/rank_0.attempt_0.log",
        "whole/ranks/rank_1.attempt_0.log",
        "whole/ranks/rank_1.json",
        "whole/result.json",
        "whole/run.json",
        "whole/trainer.pkl",
    ]
    assert result.path == f"{place.uri}/whole"
    run = place.directory / "whole"
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert [json.loads(line)["step"] for line in (run / "result.json").read_text().splitlines()] == [0, 1]
    manifest = manifest_of(run / "checkpoint_000001")
    assert (manifest["version"], manifest["iteration"], manifest["attempt"], manifest["ranks"]) == (2, 2, 0, [0, 1])
    assert manifest["metrics"]["step"] == 1 and manifest["data_position"] is None
    assert {file["path"]: file["rank"] for file in manifest["files"]} == {"shards/0": 0, "shards/1": 1, "step": 0}
    assert (run / "checkpoint_000001" / "shards" / "1").read_text() == "1 of 1 "


def test_the_result_reads_its_checkpoints_back(place: Place, tmp_path: Path) -> None:
    result = fit(saves(), place.uri, config={"steps": 3}, name="read")
    assert result.checkpoint is not None and result.checkpoint.path == f"{place.uri}/read/checkpoint_000002"
    assert step_of(result.checkpoint) == 2
    copy = Path(result.checkpoint.to_directory(tmp_path / "copy"))
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()) == [
        "shards/0",
        "shards/1",
        "step",
    ]
    assert [(step_of(one), metrics["step"]) for one, metrics in result.best_checkpoints] == [(0, 0), (1, 1), (2, 2)]
    result.checkpoint.set_metadata({"note": "mine"})
    assert Checkpoint(f"{place.uri}/read/checkpoint_000002").get_metadata() == {"note": "mine"}
    manifest_of(place.directory / "read" / "checkpoint_000002")


def test_get_checkpoint_in_the_run_is_the_one_that_was_just_stored(place: Place) -> None:
    def function() -> list[Any]:
        from carril import train

        seen = []
        for step in range(2):
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
            latest = train.get_checkpoint()
            seen.append(latest and (latest.path.rpartition("/")[2], latest.to_dict()))
        return [*seen, [one.metrics["step"] for one in train.get_all_reported_checkpoints()]]

    result = fit(function, place.uri, workers=1)
    assert result.return_value == [("checkpoint_000000", {"step": 0}), ("checkpoint_000001", {"step": 1}), [0, 1]]


def test_sync_has_stored_the_checkpoint_when_the_call_returns(s3: S3Server, place: Place) -> None:
    def function(config: dict[str, Any]) -> list[bool]:
        import os

        from carril import train

        there = []
        for step in range(3):
            train.report({}, checkpoint=train.Checkpoint.from_dict({"step": step}))
            there.append(os.path.exists(f"{config['run']}/checkpoint_{step:06d}/.manifest.json"))
        return there

    result = fit(function, place.uri, workers=1, config={"run": str(place.directory / "sync")}, name="sync")
    assert result.return_value == [True, True, True]


def test_another_process_reads_the_result_with_an_empty_disk(s3: S3Server, place: Place, scripts: Scripts) -> None:
    config = CheckpointConfig(checkpoint_score_attribute="step", checkpoint_score_order="min")
    fit(saves(), place.uri, config={"steps": 3}, name="far", checkpoint_config=config)
    output = scripts.run(
        """
        import sys
        from carril import train

        result = train.Result.from_path(sys.argv[1])
        with result.checkpoint.as_directory() as directory:
            print("step", open(f"{directory}/step").read())
        print("metrics", result.metrics["step"], result.metrics["training_iteration"])
        print("best", [metrics["step"] for _, metrics in result.best_checkpoints])
        print("rows", [row["step"] for row in result.rank_metrics(1)], result.metrics_dataframe["step"].tolist())
        print("path", result.path, result.error)
        print("last", train.Checkpoint(sys.argv[1] + "/checkpoint_000000").path)
        """,
        f"{place.uri}/far",
        **s3.variables(),
    )
    assert output.splitlines() == [
        "step 2",
        "metrics 2 3",
        "best [2, 1, 0]",
        "rows [0, 1, 2] [0, 1, 2]",
        f"path {place.uri}/far None",
        f"last {place.uri}/far/checkpoint_000000",
    ]


@pytest.mark.parametrize("victim", ["driver", "head", "worker"])
def test_after_a_kill_fit_goes_on_from_the_latest_on_an_empty_disk(
    s3: S3Server, place: Place, scripts: Scripts, elsewhere: Scripts, victim: str
) -> None:
    script = scripts.start(SCRIPT, place.uri, "3", "wait", **s3.variables())
    worker = int(script.wait_for(r"pid=(\d+)")[0])
    os.kill({"driver": script.pid, "head": script.head().pid, "worker": worker}[victim], signal.SIGKILL)
    assert script.finish() != 0
    script.is_alone()
    assert committed_steps(place.directory / "cut") == [0, 1, 2]
    output = elsewhere.run(SCRIPT, place.uri, "6", "end", **s3.variables())
    assert "begin=3" in output
    assert "kept [0, 1, 2, 3, 4, 5]" in output
    run = place.directory / "cut"
    assert committed_steps(run) == [0, 1, 2, 3, 4, 5]
    assert [json.loads(line)["step"] for line in (run / "result.json").read_text().splitlines()] == [0, 1, 2, 3, 4, 5]
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert not [path for path in elsewhere.directory.rglob("*") if path.name.startswith("checkpoint_")]


def test_a_run_that_failed_goes_on_and_one_that_finished_does_not(place: Place) -> None:
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), place.uri, config={"steps": 4, "fail_at": 1}, name="again")
    assert fit(saves(), place.uri, config={"steps": 4}, name="again").return_value == 2
    with pytest.raises(RunExistsError, match="a run named `again` has ended in `s3://"):
        fit(saves(), place.uri, config={"steps": 6}, name="again")
    assert fit(saves(), place.uri, config={"steps": 6}, name="again", resume=True).return_value == 4
    assert committed_steps(place.directory / "again") == [0, 1, 2, 3, 4, 5]


def test_a_live_run_of_that_name_is_refused_and_goes_on(place: Place, storage: Path) -> None:
    def function(config: dict[str, Any]) -> str:
        import os
        import time

        from carril import train

        train.report({"a": 1})
        open(config["go"] + ".begun", "w").close()
        while not os.path.exists(config["go"]):
            time.sleep(0.005)
        return "went on"

    go = storage / "go"
    first = trainer(function, place.uri, workers=1, config={"go": str(go)}, name="live")
    running = InBackground(first.fit)
    try:
        wait_until(lambda: (storage / "go.begun").exists(), "the first run goes on", place.objects)
        with pytest.raises(RunExistsError, match="a run named `live` is live in `s3://"):
            fit(saves(), place.uri, workers=1, config={"steps": 1}, name="live")
    finally:
        go.touch()
    assert running.finish().return_value == "went on"


def test_a_damaged_checkpoint_in_the_bucket_is_set_aside_and_passed_over(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), place.uri, config={"steps": 5, "fail_at": 2}, name="hurt")
    damaged = place.directory / "hurt" / "checkpoint_000002"
    (damaged / "shards" / "1").write_text("1 of X ")
    with pytest.raises(CheckpointError, match=r"checkpoint_000002` is damaged: .*`shards/1`"):
        Checkpoint(f"{place.uri}/hurt/checkpoint_000002").to_directory()
    capsys.readouterr()
    assert fit(saves(), place.uri, config={"steps": 4}, name="hurt").return_value == 2
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line and "another config" not in line]
    assert len(told) == 1 and "checkpoint_000002" in told[0] and "shards/1" in told[0], told
    assert (damaged / ".manifest.damaged.json").exists() and not (damaged / ".manifest.json").exists()
    assert committed_steps(place.directory / "hurt") == [0, 1, 2, 3]


def test_ranks_may_have_a_file_in_common_but_not_with_different_content(place: Place) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        train.report({}, checkpoint=train.Checkpoint.from_dict({"the": "same"}))
        train.report({}, checkpoint=train.Checkpoint.from_dict({"of": rank}))
        train.collective.barrier()

    with pytest.raises(ControllerError) as caught:
        fit(function, place.uri, name="conflict")
    assert caught.value.code == "checkpoint-conflict"
    assert "ranks 0 and 1 both reported `dict_checkpoint.pkl` in one checkpoint" in str(caught.value)
    assert Checkpoint(f"{place.uri}/conflict/checkpoint_000000").to_dict() == {"the": "same"}
    assert [key for key in place.objects() if "checkpoint_000001" in key] == []


def test_a_big_file_goes_in_parts_and_comes_back_as_it_was(place: Place, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> str:
        import hashlib
        import os

        from carril import train

        directory = os.path.join(config["place"], "big")
        os.mkdir(directory)
        data = os.urandom(1 << 20) * 45 + b"the end"
        with open(os.path.join(directory, "model"), "wb") as file:
            file.write(data)
        train.report({}, checkpoint=train.Checkpoint(directory))
        return hashlib.sha256(data).hexdigest()

    import hashlib

    result = fit(function, place.uri, workers=1, config={"place": str(tmp_path)}, name="big")
    assert result.checkpoint is not None
    copy = Path(result.checkpoint.to_directory(tmp_path / "copy"), "model")
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == result.return_value
    assert (place.directory / "big" / "checkpoint_000000" / "model").stat().st_size == (45 << 20) + len(b"the end")


def test_retention_deletes_in_the_bucket_too(place: Place) -> None:
    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="step", checkpoint_score_order="min")
    result = fit(saves(), place.uri, config={"steps": 5}, name="few", checkpoint_config=config)
    # The best two by their score, and the latest.
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [4, 1, 0]
    assert committed_steps(place.directory / "few") == [0, 1, 4]
    assert {key.split("/")[1] for key in place.objects() if "checkpoint_" in key} == {
        "checkpoint_000000",
        "checkpoint_000001",
        "checkpoint_000004",
    }


def test_a_checkpoint_goes_to_a_uri_and_comes_from_one(place: Place) -> None:
    uri = Checkpoint.from_dict({"a": [1]}).to_uri(f"{place.uri}/loose")
    assert uri == f"{place.uri}/loose" and Checkpoint.from_uri(uri).to_dict() == {"a": [1]}
    assert Checkpoint.from_uri(uri).uri == uri
    assert place.objects() == ["loose/dict_checkpoint.pkl"]


def test_no_trace_of_a_run_in_the_bucket_is_no_result(place: Place) -> None:
    with pytest.raises(RuntimeError, match=r"`s3://[^`]*/nothing`"):
        Result.from_path(f"{place.uri}/nothing")
    assert RunConfig(storage_path=place.uri).storage_path == place.uri
