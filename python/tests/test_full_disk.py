"""Storage that is full for a moment or for good, files that were cut off, and a run's directory that is taken away.

A disk is full while a flag lies beside the runs (`CARRIL_FAULT=full:…`): the calls that it refuses are in a log, so that
each test knows that the fault has fired. A line that is being appended then stops half-way.
"""

import csv
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checkpoint_runs import committed_steps, saves
from conftest import wait_until
from runs import fit, lines

import carril
from carril._internal import driver
from carril.exceptions import StorageError
from carril.train import ControllerError, FailureConfig, Result, WorkerGroupError


class Disk(NamedTuple):
    """Where runs go, and what makes it full."""

    storage: Path
    flag: Path
    log: Path

    @property
    def refused(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def config(self, **more: Any) -> dict[str, Any]:
        return {"flag": str(self.flag), "log": str(self.log), **more}


@pytest.fixture
def disk(storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light_heads: None) -> Iterator[Disk]:
    found = Disk(storage, storage / "full", tmp_path / "refused")
    carril.shutdown()
    monkeypatch.setenv("CARRIL_FAULT", f"full:{found.flag}:{found.log}")
    yield found
    carril.shutdown()


def full_in_between() -> Callable[[dict[str, Any]], None]:
    """Reports, and fills the disk from `fill` until the head has been refused."""

    def function(config: dict[str, Any]) -> None:
        import os
        import time
        from pathlib import Path

        from carril import train

        first = train.get_context().get_world_rank() == 0
        for step in range(config["steps"]):
            if step == config["fill"] and first:
                open(config["flag"], "w").close()
            train.report({"step": step, "text": f"of step {step} " * 9, "nested": {f"key_{step}": step}})
            if step == config["fill"] + 5 and first:
                deadline = time.monotonic() + 60
                while not os.path.exists(config["log"]) or "result.json" not in Path(config["log"]).read_text():
                    assert time.monotonic() < deadline, "the disk refused nothing"
                    time.sleep(0.01)
                os.remove(config["flag"])

    return function


def test_a_disk_that_is_full_for_a_moment_costs_no_report_and_two_warnings(
    disk: Disk, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    result = fit(full_in_between(), disk.storage, config=disk.config(steps=40, fill=10), name="short")
    run = disk.storage / "short"
    assert any("append" in line and "result.json" in line for line in disk.refused)
    assert [row["step"] for row in lines(run / "result.json")] == list(range(40))
    assert [row["step"] for row in lines(run / "ranks" / "rank_1.json")] == list(range(40))
    assert len((run / "progress.csv").read_text().splitlines()) == 41
    assert [row["step"] for row in Result.from_path(run).rank_metrics(0)] == list(range(40))
    assert result.metrics is not None and result.metrics["step"] == 39
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 2 and "no space left" in told[0] and "complete again" in told[1], told
    assert list(recwarn) == []


def _fails_after(storage: Path, step: int) -> Path:
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), storage, config={"steps": 6, "fail_at": step}, name="cut")
    return storage / "cut"


def test_files_that_were_cut_in_a_line_before_a_resume_lose_that_line_alone(disk: Disk) -> None:
    run = _fails_after(disk.storage, 2)
    for file in [run / "result.json", run / "ranks" / "rank_1.json", *(run / "journal").glob("*.log")]:
        whole = file.read_bytes()
        file.write_bytes(whole[: -len(whole.splitlines()[-1]) // 2])
    assert fit(saves(), disk.storage, config={"steps": 5}, name="cut").return_value == 3
    with pytest.warns(UserWarning, match=r"result\.json` has 1 line that is no JSON object") as told:
        result = Result.from_path(run)
    assert len(told) == 1
    assert result.metrics is not None and result.metrics["step"] == 4
    with pytest.warns(UserWarning, match="1 line"):
        assert [row["step"] for row in result.rank_metrics(0)] == [0, 1, 3, 4]
    with pytest.warns(UserWarning, match=r"rank_1\.json` has 1 line"):
        assert [row["step"] for row in result.rank_metrics(1)] == [0, 1, 3, 4]
    # A finished run that has nothing left to do tells its last report from the files.
    again = fit(saves(), disk.storage, config={"steps": 5}, name="cut", resume=True)
    assert again.metrics is not None and again.metrics["step"] == 4


def test_a_line_whose_end_alone_was_cut_off_is_not_lost(disk: Disk) -> None:
    run = _fails_after(disk.storage, 2)
    for file in [run / "result.json", run / "ranks" / "rank_1.json"]:
        file.write_bytes(file.read_bytes()[:-1])
    fit(saves(), disk.storage, config={"steps": 5}, name="cut")
    for file in [run / "result.json", run / "ranks" / "rank_1.json"]:
        assert [row["step"] for row in lines(file)] == [0, 1, 2, 3, 4]


def test_lines_that_are_not_ours_are_counted_in_one_warning(disk: Disk) -> None:
    fit(saves(), disk.storage, config={"steps": 2}, name="foreign")
    run = disk.storage / "foreign"
    foreign = b'\xff\xfe\x00\x01\n[1, 2]\n"text"\n{"half": \n' + b"[" * 100_000 + b"\n"
    for file in [run / "result.json", run / "journal" / "000000.log"]:
        before = file.read_bytes().split(b"\n", 1)
        file.write_bytes(before[0] + b"\n" + foreign + before[1])
    with pytest.warns(UserWarning, match=r"result\.json` has 5 lines that are no JSON object") as told:
        result = Result.from_path(run)
    assert len(told) == 1
    assert result.metrics is not None and result.metrics["step"] == 1 and result.restarts == []


def counts_its_starts() -> Callable[[dict[str, Any]], str]:
    """Saves once, with a disk that is full from then on, or until `moment` calls for the checkpoint were refused."""

    def function(config: dict[str, Any]) -> str:
        import os
        import tempfile
        import threading
        import time
        from pathlib import Path

        from carril import train

        def relieve() -> None:
            while Path(config["log"]).read_text().count("/.staging/") < config["moment"]:
                time.sleep(0.01)
            os.remove(config["flag"])

        with open(config["starts"], "a") as file:
            file.write("x")
        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"step": 0}))
        assert train.get_checkpoint() is not None  # it is stored
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "weights"), "w") as file:
                file.write("x" * 1000)
            open(config["flag"], "w").close()
            if config["moment"]:
                threading.Thread(target=relieve, daemon=True).start()
            train.report({"step": 1}, checkpoint=train.Checkpoint(directory), checkpoint_upload_mode=config["mode"])
        return "returned"

    return function


@contextmanager
def relieved(disk: Disk, when: Callable[[], object], what: str) -> Iterator[None]:
    """Somebody makes room as soon as `when` is true."""

    def relieve() -> None:
        try:
            wait_until(when, what)
        finally:
            disk.flag.unlink(missing_ok=True)

    thread = threading.Thread(target=relieve)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
def test_a_disk_that_is_full_at_the_end_does_not_make_a_training_again(
    disk: Disk, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARRIL_FAULT_DEADLINE", "1")
    config = disk.config(starts=str(tmp_path / "starts"), moment=0, mode=mode)
    journal = disk.storage / "end" / "journal" / "000000.log"
    ended = relieved(disk, lambda: journal.exists() and "EndRun" in journal.read_text(), "the run has ended")
    with ended, pytest.raises((ControllerError, WorkerGroupError, StorageError), match="no space left") as caught:
        fit(
            counts_its_starts(),
            disk.storage,
            workers=1,
            config=config,
            name="end",
            failure_config=FailureConfig(max_failures=3, max_infrastructure_failures=3),
        )
    assert disk.refused
    assert (tmp_path / "starts").read_text() == "x", str(caught.value)
    assert (disk.storage / "end" / "checkpoint_000000" / ".manifest.json").exists()


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
def test_a_disk_that_is_full_for_a_moment_costs_no_checkpoint(
    disk: Disk, tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = disk.config(starts=str(tmp_path / "starts"), moment=8, mode=mode)
    result = fit(counts_its_starts(), disk.storage, workers=1, config=config, name="moment")
    assert disk.refused and (tmp_path / "starts").read_text() == "x"
    assert result.return_value == "returned" and len(result.best_checkpoints) == 2
    assert result.checkpoint is not None and len(result.checkpoint.to_dict()["weights"]) == 1000


def taken_away() -> Callable[[dict[str, Any]], int]:
    """Reports and saves; in the middle the run's directory goes, and comes back by itself."""

    def function(config: dict[str, Any]) -> int:
        import os
        import shutil
        import time
        from pathlib import Path

        from carril import train

        run, saw = config["run"], 0
        for step in range(10):
            print(f"step {step}", flush=True)
            checkpoint = train.Checkpoint.from_dict({"step": step}) if step in (2, 8) else None
            train.report({"step": step}, checkpoint=checkpoint)
            train.get_checkpoint()  # when it is stored
            if step == 5:
                train.collective.barrier()
                if train.get_context().get_world_rank() == 0:
                    while len(Path(run, "result.json").read_text().splitlines()) < 6:
                        time.sleep(0.01)
                    os.rename(run, f"{run}.moved")
                    if config["how"] == "removed":
                        shutil.rmtree(f"{run}.moved")
                    deadline = time.monotonic() + 60
                    while not os.path.exists(os.path.join(run, "run.json")):
                        assert time.monotonic() < deadline, "nobody has noticed"
                        time.sleep(0.05)
                    saw = 1
                train.collective.barrier()
        return saw

    return function


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_directory_that_is_taken_away_is_noticed_and_what_can_be_kept_is_kept(
    disk: Disk, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = disk.storage / "away"
    result = fit(taken_away(), disk.storage, config={"run": str(run), "how": how}, name="away")
    assert result.return_value == 1
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 1 and "was moved, removed or unmounted" in told[0] and "checkpoint_000000" in told[0], told
    assert [row["step"] for row in lines(run / "result.json")] == list(range(10))
    assert [row["step"] for row in lines(run / "ranks" / "rank_1.json")] == list(range(10))
    assert len((run / "progress.csv").read_text().splitlines()) == 11
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert {"params.json", "trainer.pkl", "function.pkl", "journal"} <= {path.name for path in run.iterdir()}
    (log,) = run.rglob("rank_0*.log")
    assert log.read_text().splitlines() == [f"step {step}" for step in range(10)]
    assert [checkpoint.to_dict() for checkpoint, _ in result.best_checkpoints] == [{"step": 8}]
    read = Result.from_path(run)
    assert read.metrics is not None and read.metrics["step"] == 9
    if how == "moved":
        assert committed_steps_of_dicts(Path(f"{run}.moved")) == [2]
        shutil.rmtree(f"{run}.moved")


def committed_steps_of_dicts(run: Path) -> list[int]:
    return [checkpoint.to_dict()["step"] for checkpoint, _ in Result.from_path(run).best_checkpoints]


def test_a_run_of_a_newer_format_is_refused_in_a_sentence(disk: Disk) -> None:
    run = _fails_after(disk.storage, 1)
    record = json.loads((run / "run.json").read_text())
    assert record["format"] == 1
    record["format"] = 7
    (run / "run.json").write_text(json.dumps(record))
    newer = r"run\.json` was written by a newer Carril: it has format 7, and this version reads up to 1"
    for open_run in (
        lambda: Result.from_path(run),
        lambda: fit(saves(), disk.storage, config={"steps": 3}, name="cut"),
    ):
        with pytest.raises(carril.exceptions.VersionMismatchError, match=newer):
            open_run()
    assert committed_steps(run) == [0, 1]


def ends_on_a_full_disk() -> Callable[[dict[str, Any]], None]:
    """Fills the disk and reports on: nothing of it can be written before the function returns."""

    def function(config: dict[str, Any]) -> None:
        from carril import train

        for step in range(8):
            if step == 5 and train.get_context().get_world_rank() == 0:
                open(config["flag"], "w").close()
            train.collective.barrier()
            train.report({"step": step})

    return function


def test_a_disk_that_is_full_when_a_run_ends_is_waited_for(disk: Disk) -> None:
    refused = relieved(disk, lambda: sum("result.json" in line for line in disk.refused) > 3, "the end is tried again")
    with refused:
        fit(ends_on_a_full_disk(), disk.storage, config=disk.config(), name="late")
    run = disk.storage / "late"
    assert not disk.flag.exists()
    assert [row["step"] for row in lines(run / "result.json")] == list(range(8))
    assert len((run / "progress.csv").read_text().splitlines()) == 9
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


def comes_back() -> Callable[[dict[str, Any]], None]:
    """The run's directory goes, is made again, and then the one that went is put back, as a remount does."""

    def function(config: dict[str, Any]) -> None:
        import os
        import shutil
        import time
        from pathlib import Path

        from carril import train

        run = config["run"]
        first = train.get_context().get_world_rank() == 0

        def wait_for(rows: int) -> None:
            deadline = time.monotonic() + 60
            results = Path(run, "result.json")
            while not results.exists() or len(results.read_text().splitlines()) < rows:
                assert time.monotonic() < deadline, f"there are no {rows} reports"
                time.sleep(0.02)

        for step in range(12):
            train.report({"step": step, **({"later": 1} if step > 6 else {})})
            if first and step == 5:
                wait_for(6)
                os.rename(run, f"{run}.away")
            if first and step == 8:
                wait_for(9)
                shutil.rmtree(run)
                os.rename(f"{run}.away", run)
            train.collective.barrier()

    return function


def test_reports_that_came_while_the_directory_was_away_are_added_when_it_comes_back(disk: Disk) -> None:
    run = disk.storage / "back"
    fit(comes_back(), disk.storage, config={"run": str(run)}, name="back")
    assert [row["step"] for row in lines(run / "result.json")] == list(range(12))
    assert [row["step"] for row in lines(run / "ranks" / "rank_1.json")] == list(range(12))
    with open(run / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [str(step) for step in range(12)]
    assert [row["later"] for row in rows] == ["" if step < 7 else "1" for step in range(12)]
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


def test_a_row_of_progress_csv_that_was_cut_off_before_a_resume_is_whole_again(disk: Disk) -> None:
    run = _fails_after(disk.storage, 2)
    whole = (run / "progress.csv").read_text()
    (run / "progress.csv").write_text(whole[:-7])
    fit(saves(), disk.storage, config={"steps": 5}, name="cut")
    with open(run / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["time_total_s"] for row in rows][:3] == [
        row["time_total_s"] for row in csv.DictReader(whole.splitlines())
    ]


def test_checkpoints_that_somebody_deletes_in_mid_run_are_not_handed_out(disk: Disk) -> None:
    def function(config: dict[str, Any]) -> None:
        import shutil

        from carril import train

        for step in range(3):
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
            train.get_checkpoint()  # it is stored
            if step == 1:
                shutil.rmtree(f"{config['run']}/checkpoint_000000")

    run = disk.storage / "deleted"
    result = fit(function, disk.storage, workers=1, config={"run": str(run)}, name="deleted")
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints] == [1, 2]


def test_a_damaged_record_of_a_run_is_named_and_who_asks_for_it_resumes(disk: Disk) -> None:
    run = _fails_after(disk.storage, 2)
    whole = (run / "run.json").read_text()
    for content in ("", whole[:100], "[]"):
        (run / "run.json").write_text(content)
        with pytest.raises(StorageError, match=r"run\.json` is damaged") as caught:
            fit(saves(), disk.storage, config={"steps": 5}, name="cut", resume=False)
        assert any("resume=True" in hint for hint in caught.value.hints)
        with pytest.warns(UserWarning, match=r"run\.json` is damaged"):
            assert Result.from_path(run).metrics is not None
    assert fit(saves(), disk.storage, config={"steps": 5}, name="cut", resume=True).return_value == 3
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


def test_a_damaged_error_is_named_and_read_from_the_other_file(disk: Disk) -> None:
    run = _fails_after(disk.storage, 2)
    (run / "error.json").write_text((run / "error.json").read_text()[:50])
    with pytest.warns(UserWarning, match=r"error\.json` is damaged"):
        assert "on purpose" in str(Result.from_path(run).error)
    (run / "error.json").unlink()
    assert "on purpose" in str(Result.from_path(run).error)


def test_a_last_line_that_was_cut_off_is_counted_and_one_without_its_end_is_read(disk: Disk) -> None:
    run = _fails_after(disk.storage, 2)
    whole = (run / "result.json").read_bytes()
    (run / "result.json").write_bytes(whole[:-1])
    assert [row["step"] for row in Result.from_path(run).rank_metrics(0)] == [0, 1, 2]
    (run / "result.json").write_bytes(whole[:-30])
    with pytest.warns(UserWarning, match=r"result\.json` has 1 line"):
        result = Result.from_path(run)
    assert result.metrics is not None and result.metrics["step"] == 1


def test_a_runtime_directory_that_is_full_for_a_moment_costs_no_report(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light_heads: None
) -> None:
    def function(config: dict[str, Any]) -> None:
        import os
        import threading
        import time

        from carril import train

        def relieve() -> None:
            while not os.path.exists(config["log"]) or not os.path.getsize(config["log"]):
                time.sleep(0.01)
            os.remove(config["flag"])

        for step in range(6):
            if step == 3:
                open(config["flag"], "w").close()
                threading.Thread(target=relieve, daemon=True).start()
            train.report({"step": step})

    # Short, because the path of a socket is: the usual directory of a test would not do.
    runtime = Path(tempfile.mkdtemp(prefix="r-"))
    flag, log = runtime / "full", tmp_path / "refused"
    carril.shutdown()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("CARRIL_FAULT", f"full:{flag}:{log}")
    fit(function, storage, workers=1, config={"flag": str(flag), "log": str(log)}, name="tight")
    carril.shutdown()
    shutil.rmtree(runtime)
    assert log.read_text().startswith("append"), "the log of the reports was refused"
    assert [row["step"] for row in lines(storage / "tight" / "result.json")] == list(range(6))


def test_large_reports_take_little_room_on_their_way(storage: Path) -> None:
    """Two ranks report 200 MB each as fast as they can: neither the runtime directory nor the head grows with that."""

    def function(config: dict[str, Any]) -> int:
        import contextlib
        import os

        from carril import train

        used = 0
        for step in range(200):
            train.report({"step": step, "text": "x" * (1 << 20)})
            sizes = 0
            for root, _, names in os.walk(config["directory"]):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        sizes += os.stat(os.path.join(root, name)).st_blocks * 512
            used = max(used, sizes)
        return used

    carril.shutdown()
    carril.init(num_cpus=2)
    client = driver.ensure_client()
    result = fit(function, storage, config={"directory": client.directory}, name="large")
    status = Path(f"/proc/{client.head_pid}/status").read_text()
    peak = next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM"))
    carril.shutdown()
    assert result.return_value < 100 << 20, result.return_value
    assert peak < 300, f"{peak} MB in the head"
    assert len((storage / "large" / "result.json").read_bytes()) > 200 << 20
