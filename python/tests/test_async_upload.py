"""ASYNC: the call takes a snapshot and returns; storing it goes on beside the training, a bounded number at a time.

The proxy holds back what goes to the store, so that "while it is being stored" is a state that a test is in for as long
as it likes, and not a race. Times of test and workers are of one clock, that of the machine.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground, committed_steps, manifest_of, saves
from conftest import wait_until
from faulty_proxy import FaultyProxy
from runs import NO_RESTART, fit, lines, trainer
from s3_server import Place, place_fixture, proxied_fixture, s3_fixture  # noqa: F401

import carril
from carril.train import CheckpointConfig, ControllerError, WorkerGroupError

Proxied = Callable[..., FaultyProxy]


def notes_times() -> Callable[[dict[str, Any]], None]:
    """Reports one checkpoint after the other and notes when each call began and when it returned, a line each."""

    def function(config: dict[str, Any]) -> None:
        import os
        import tempfile
        import time

        from carril import train

        rank = train.get_context().get_world_rank()
        with open(f"{config['notes']}.{rank}", "a", buffering=1) as notes:
            for step, score in enumerate(config["scores"]):
                directory = tempfile.mkdtemp()
                with open(os.path.join(directory, f"model.{rank}"), "w") as file:
                    file.write(f"{step}".ljust(config.get("size", 1)))
                notes.write(f"begin {step} {time.monotonic()}\n")
                train.report(
                    {"step": step, "score": score},
                    checkpoint=train.Checkpoint.from_directory(directory),
                    checkpoint_upload_mode="ASYNC",
                )
                notes.write(f"end {step} {time.monotonic()}\n")

    return function


class Notes:
    """What the workers of a run have noted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def times(self, what: str, rank: int = 0) -> list[float]:
        file = Path(f"{self.path}.{rank}")
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [float(row[2]) for row in rows if len(row) == 3 and row[0] == what]

    def wait_for(self, what: str, count: int, ranks: int = 1) -> None:
        wait_until(
            lambda: all(len(self.times(what, rank)) >= count for rank in range(ranks)),
            f"{count} times `{what}` of {ranks} ranks",
            lambda: [self.times(what, rank) for rank in range(ranks)],
        )


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


@pytest.fixture
def local_head() -> Iterator[None]:
    """A head for runs on a local path: those of the other tests know the way to the store, and are gone."""
    carril.shutdown()
    carril.init(num_cpus=8)
    yield
    carril.shutdown()


def start(notes: Notes, place: Place, scores: list[float], workers: int = 1, **run: Any) -> InBackground:
    config = {"notes": str(notes.path), "scores": scores}
    return InBackground(trainer(notes_times(), place.uri, workers, config, name="run", **run).fit)


def test_the_call_returns_while_the_checkpoint_is_still_being_stored(
    proxied: Proxied, place: Place, notes: Notes
) -> None:
    proxy = proxied()
    hold = proxy.hold("(PUT|POST) .*checkpoint_")
    running = start(notes, place, [1.0, 2.0], workers=2)
    notes.wait_for("end", 2, ranks=2)
    wait_until(lambda: hold.waiting, "the store is being written to")
    assert committed_steps(place.directory / "run") == [] and not running.is_over
    hold.release()
    result = running.finish()
    assert committed_steps(place.directory / "run") == [0, 1]
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1]


def test_the_end_of_the_run_waits_for_the_last(proxied: Proxied, place: Place, notes: Notes) -> None:
    proxy = proxied()
    hold = proxy.hold("PUT .*checkpoint_000002/")
    running = start(notes, place, [1.0, 2.0, 3.0])
    notes.wait_for("end", 3)
    wait_until(lambda: hold.waiting, "the last one is being stored")
    assert not running.is_over
    released = time.monotonic()
    hold.release()
    result = running.finish()
    assert max(notes.times("end")) < released, "the function had returned long before"
    assert result.checkpoint is not None and result.checkpoint.path == f"{place.uri}/run/checkpoint_000002"
    assert committed_steps(place.directory / "run") == [0, 1, 2]


def test_at_most_three_are_on_their_way_then_the_call_waits_for_a_place(
    proxied: Proxied, place: Place, notes: Notes
) -> None:
    proxy = proxied()
    hold = proxy.hold("PUT .*checkpoint_")
    running = start(notes, place, [float(step) for step in range(6)], workers=2)
    notes.wait_for("begin", 4, ranks=2)
    wait_until(lambda: hold.waiting, "the store is being written to")
    released = time.monotonic()
    hold.release()
    running.finish()
    for rank in range(2):
        ends = notes.times("end", rank)
        assert ends[2] < released < ends[3], (rank, ends, released)
    assert committed_steps(place.directory / "run") == list(range(6)), "nothing was dropped: all are to be kept"


def test_one_that_would_be_deleted_at_once_is_dropped_instead_of_waited_for(
    proxied: Proxied, place: Place, notes: Notes
) -> None:
    proxy = proxied()
    hold = proxy.hold("PUT .*checkpoint_")
    running = start(notes, place, [0.0] * 12, workers=2, checkpoint_config=CheckpointConfig(num_to_keep=1))
    notes.wait_for("end", 12, ranks=2)
    wait_until(lambda: hold.waiting, "the store is being written to")
    assert not running.is_over
    hold.release()
    result = running.finish()
    assert committed_steps(place.directory / "run") == [11]
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [11]
    begun = {request.path.split("/")[-2] for request in proxy.seen("PUT .*/checkpoint_[0-9]+/model")}
    assert len(begun) < 12, f"superseded ones are never sent: {begun}"
    assert [row["step"] for row in result.rank_metrics(0)] == list(range(12)), "their reports count all the same"


def test_one_that_retention_would_keep_is_never_dropped(proxied: Proxied, place: Place, notes: Notes) -> None:
    proxy = proxied()
    hold = proxy.hold("PUT .*checkpoint_")
    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score", checkpoint_score_order="max")
    # The second is the best of all: while it waits behind the first, and the third is the latest, there is no place.
    running = start(notes, place, [1.0, 9.0, *[0.5] * 8], checkpoint_config=config)
    notes.wait_for("begin", 4)
    wait_until(lambda: hold.waiting, "the store is being written to")
    released = time.monotonic()
    hold.release()
    result = running.finish()
    assert notes.times("end")[3] > released
    assert committed_steps(place.directory / "run") == [1, 9]
    assert [metrics["score"] for _, metrics in result.best_checkpoints] == [0.5, 9.0]


def test_every_new_best_is_waited_for(proxied: Proxied, place: Place, notes: Notes) -> None:
    proxy = proxied()
    hold = proxy.hold("PUT .*checkpoint_")
    config = CheckpointConfig(num_to_keep=5, checkpoint_score_attribute="score", checkpoint_score_order="max")
    running = start(notes, place, [float(step) for step in range(5)], checkpoint_config=config)
    notes.wait_for("begin", 4)
    released = time.monotonic()
    hold.release()
    running.finish()
    assert notes.times("end")[3] > released
    assert committed_steps(place.directory / "run") == list(range(5))


def test_what_the_call_took_and_what_storing_took_are_metrics_of_the_run(proxied: Proxied, place: Place) -> None:
    def function() -> None:
        from carril import train

        for step in range(2):
            given = train.Checkpoint.from_dict({"weights": "x" * 200_000})
            train.report({"step": step}, checkpoint=given, checkpoint_upload_mode="ASYNC")
        train.get_all_reported_checkpoints()
        train.report({"step": 2})

    proxied(bytes_per_second=400_000)
    result = fit(function, place.uri, workers=1, name="run")
    rows = lines(place.directory / "run" / "result.json")
    assert result.metrics is not None and len(rows) == 3
    for metrics in (rows[2], result.metrics):
        assert metrics["checkpoint_upload_s"] >= 0.9, "so long do 2 times 200 kB take at 400 kB a second"
        assert 0 < metrics["checkpoint_stall_s"] < 0.3 * metrics["checkpoint_upload_s"], metrics
    assert rows[1]["checkpoint_upload_s"] < 0.4, "the second call did not wait for the first to be stored"


def test_an_upload_that_fails_for_good_is_told_and_the_next_one_is_stored(
    proxied: Proxied, place: Place, notes: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy = proxied()
    proxy.refuse("PUT .*checkpoint_000000/model")
    start(notes, place, [1.0, 2.0]).finish()
    assert proxy.injected["refused with 403 AccessDenied"], proxy.injected
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 1 and "checkpoint_000000" in told[0], told
    assert committed_steps(place.directory / "run") == [1]


def test_if_the_last_one_cannot_be_stored_the_run_has_failed(proxied: Proxied, place: Place, notes: Notes) -> None:
    proxy = proxied()
    proxy.refuse("PUT .*checkpoint_000001/model")
    with pytest.raises(ControllerError, match="checkpoint_000001"):
        start(notes, place, [1.0, 2.0], failure_config=NO_RESTART).finish()
    assert proxy.injected["refused with 403 AccessDenied"], proxy.injected
    assert committed_steps(place.directory / "run") == [0]
    assert json.loads((place.directory / "run" / "run.json").read_text())["status"] == "failed"


def test_a_worker_that_is_killed_after_the_call_loses_nothing(proxied: Proxied, place: Place) -> None:
    def function() -> None:
        import os
        import signal

        from carril import train

        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"step": 0}), checkpoint_upload_mode="ASYNC")
        os.kill(os.getpid(), signal.SIGKILL)

    proxy = proxied()
    hold = proxy.hold("PUT .*checkpoint_")
    running = InBackground(trainer(function, place.uri, workers=1, name="killed", failure_config=NO_RESTART).fit)
    wait_until(lambda: hold.waiting, "the store is being written to")
    hold.release()
    with pytest.raises(WorkerGroupError, match="SIGKILL"):
        running.finish()
    assert committed_steps(place.directory / "killed") == [0]


def test_a_directory_that_is_given_away_is_renamed_and_another_is_copied(local_head: None, storage: Path) -> None:
    """On a local path: ASYNC gives away unless told otherwise, SYNC does not."""

    def function(config: dict[str, Any]) -> list[Any]:
        import os

        from carril import train

        found = []
        for step, (mode, delete) in enumerate([("ASYNC", None), ("ASYNC", False), ("SYNC", None), ("SYNC", True)]):
            directory = os.path.join(config["place"], f"mine-{step}")
            os.mkdir(directory)
            file = os.path.join(directory, "model")
            with open(file, "w") as opened:
                opened.write(f"of step {step}")
            inode = os.stat(file).st_ino
            train.report(
                {"step": step, "inode": inode},
                checkpoint=train.Checkpoint(directory),
                checkpoint_upload_mode=mode,
                delete_local_checkpoint_after_upload=delete,
            )
            there = os.path.exists(directory)
            if there:
                with open(file, "r+") as opened:
                    opened.write("OVERWRITTEN")
            found.append(there)
        return found

    result = fit(function, storage, workers=1, config={"place": str(storage)}, name="run")
    assert result.return_value == [False, True, True, False]
    renamed = []
    for step in range(4):
        checkpoint = storage / "run" / f"checkpoint_{step:06d}"
        assert (checkpoint / "model").read_text() == f"of step {step}"
        inode = manifest_of(checkpoint)["metrics"]["inode"]
        renamed.append(os.stat(checkpoint / "model").st_ino == inode)
    assert renamed == [True, False, False, True]


def test_async_on_a_local_path_is_in_order_and_complete(local_head: None, storage: Path) -> None:
    config = {"steps": 50, "mode": "ASYNC", "size": 10_000}
    result = fit(saves(), storage, workers=3, config=config, name="run")
    assert committed_steps(storage / "run") == list(range(50))
    assert [Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints] == [
        f"checkpoint_{step:06d}" for step in range(50)
    ]
    assert result.metrics is not None and result.metrics["checkpoint_stall_s"] >= 0
