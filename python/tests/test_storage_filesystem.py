"""`storage_filesystem`: runs that are kept in a file system object of pyarrow or fsspec, and checkpoints that the user
puts into the run's storage himself (`checkpoint_upload_fn`, NO_UPLOAD).

All of them end in a local directory, so that a test sees what is stored; what reaches it does not know that.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import own_filesystems
import pyarrow.fs
import pytest
from checkpoint_runs import committed_steps, manifest_of, saves, step_of
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from runs import fit

from carril.exceptions import ConfigError, RunExistsError, StorageError
from carril.train import Checkpoint, CheckpointConfig, Result, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")


class Store(NamedTuple):
    """A file system object, a path in it for runs, and the directory in which they end up."""

    filesystem: Any
    path: str
    directory: Path


def _arrow_local(root: Path) -> Store:
    return Store(pyarrow.fs.LocalFileSystem(), str(root), root)


def _arrow_subtree(root: Path) -> Store:
    return Store(
        pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem()), "runs/mine", root / "runs" / "mine"
    )


def _fsspec_local(root: Path) -> Store:
    return Store(fsspec.filesystem("file"), str(root), root)


def _fsspec_directory(root: Path) -> Store:
    return Store(DirFileSystem(str(root), LocalFileSystem(auto_mkdir=True)), "runs", root / "runs")


def _arrow_over_fsspec(root: Path) -> Store:
    inner = _fsspec_directory(root)
    return Store(pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(inner.filesystem)), inner.path, inner.directory)


def _own_class(root: Path) -> Store:
    return Store(own_filesystems.Drawer(str(root)), "some/runs", root / "some" / "runs")


STORES: dict[str, Callable[[Path], Store]] = {
    "pyarrow's local": _arrow_local,
    "pyarrow's subtree": _arrow_subtree,
    "fsspec's local": _fsspec_local,
    "fsspec's directory": _fsspec_directory,
    "pyarrow over fsspec": _arrow_over_fsspec,
    "a class of the user's own": _own_class,
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    root = tmp_path / "root"
    root.mkdir()
    return STORES[request.param](root)


def test_a_run_is_kept_in_it_and_read_back(store: Store) -> None:
    result = fit(saves(), store.path, config={"steps": 2}, name="run", storage_filesystem=store.filesystem)
    run = store.directory / "run"
    assert committed_steps(run) == [0, 1]
    assert (run / "checkpoint_000001" / "shards" / "1").read_text() == "1 of 1 "
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert len((run / "result.json").read_text().splitlines()) == 2
    assert result.checkpoint is not None and step_of(result.checkpoint) == 1
    again = Result.from_path(f"{store.path}/run", storage_filesystem=store.filesystem)
    assert [(step_of(one), metrics["step"]) for one, metrics in again.best_checkpoints] == [(0, 0), (1, 1)]
    assert [row["step"] for row in again.rank_metrics(1)] == [0, 1]


def test_fit_again_goes_on_from_the_latest_and_retention_deletes_there(store: Store) -> None:
    run = {"name": "run", "storage_filesystem": store.filesystem, "checkpoint_config": CheckpointConfig(num_to_keep=2)}
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), store.path, config={"steps": 5, "fail_at": 2}, **run)
    assert committed_steps(store.directory / "run") == [1, 2]
    assert fit(saves(), store.path, config={"steps": 5}, **run).return_value == 3
    assert committed_steps(store.directory / "run") == [3, 4]
    with pytest.raises(RunExistsError):
        fit(saves(), store.path, config={"steps": 5}, **run)


def test_a_damaged_checkpoint_in_it_is_passed_over(store: Store) -> None:
    run = {"name": "run", "storage_filesystem": store.filesystem}
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), store.path, config={"steps": 5, "fail_at": 2}, **run)
    (store.directory / "run" / "checkpoint_000002" / "shards" / "0").write_text("X of 2 ")
    assert fit(saves(), store.path, config={"steps": 4}, **run).return_value == 2


def test_what_the_file_system_prints_in_its_process_disturbs_nothing(tmp_path: Path) -> None:
    talks = own_filesystems.Talks(str(tmp_path), LocalFileSystem(auto_mkdir=True))
    fit(saves(), "runs", config={"steps": 2}, name="run", storage_filesystem=talks)
    assert committed_steps(tmp_path / "runs" / "run") == [0, 1]


def test_a_file_system_that_fails_is_told_with_its_own_words_before_anything_starts(tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        open(config["ran"], "w").close()

    refuses = own_filesystems.Refuses(str(tmp_path), LocalFileSystem(auto_mkdir=True))
    with pytest.raises(StorageError, match="not on Sundays"):
        fit(function, "runs", 1, {"ran": str(tmp_path / "ran")}, name="run", storage_filesystem=refuses)
    assert not (tmp_path / "ran").exists()


def test_a_file_system_that_loses_one_checkpoint_costs_that_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picky = own_filesystems.Picky(str(tmp_path), LocalFileSystem(auto_mkdir=True))
    fit(saves(), "runs", config={"steps": 3}, name="run", storage_filesystem=picky)
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 1 and "the tape is torn" in told[0] and "checkpoint_000001" in told[0], told
    assert committed_steps(tmp_path / "runs" / "run") == [0, 2]


def test_a_class_that_cannot_be_sent_is_named_before_anything_starts(tmp_path: Path) -> None:
    """One of a script's own: fsspec gives every class a lock, and only a module's classes travel by name."""

    class Mine(DirFileSystem):  # type: ignore[misc]
        pass

    mine = Mine(str(tmp_path), LocalFileSystem())
    with pytest.raises(ConfigError, match="`storage_filesystem`, a Mine, cannot be sent"):
        fit(lambda: None, "runs", 1, name="run", storage_filesystem=mine)
    assert list(tmp_path.iterdir()) == []


def test_the_worker_sees_the_file_system_in_its_context(tmp_path: Path) -> None:
    def function() -> tuple[str, str, str]:
        from carril import train

        context = train.get_context().get_storage()
        train.report({}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        latest = train.get_checkpoint()
        assert latest is not None and latest.to_dict() == {"a": 1}
        return type(context.storage_filesystem).__name__, context.experiment_fs_path, latest.path

    store = _arrow_subtree(tmp_path)
    result = fit(function, store.path, 1, name="run", storage_filesystem=store.filesystem)
    assert result.return_value == ("SubTreeFileSystem", "runs/mine/run", "runs/mine/run/checkpoint_000000")


def uploads() -> Callable[[dict[str, Any]], Any]:
    """Puts each rank's file into the run's storage itself, by a function that `report` calls."""

    def function(config: dict[str, Any]) -> list[str]:
        import os
        import shutil

        from carril import train

        rank = train.get_context().get_world_rank()
        names = []

        def upload(checkpoint: Any, name: str) -> Any:
            names.append(name)
            place = train.get_context().get_storage().build_checkpoint_path_from_name(name)
            os.makedirs(place, exist_ok=True)
            with checkpoint.as_directory() as directory:
                shutil.copy(os.path.join(directory, "model"), os.path.join(place, f"model.{rank}"))
            return train.Checkpoint(place)

        for step in range(2):
            directory = os.path.join(config["place"], f"mine-{rank}-{step}")
            os.mkdir(directory)
            with open(os.path.join(directory, "model"), "w") as file:
                file.write(f"{rank} of {step}")
            train.report({"step": step}, checkpoint=train.Checkpoint(directory), checkpoint_upload_fn=upload)
        return names

    return function


def test_an_upload_function_stores_the_files_and_a_manifest_is_written_beside_them(storage: Path) -> None:
    result = fit(uploads(), storage, config={"place": str(storage)}, name="run")
    assert len(result.return_value) == len(set(result.return_value)) == 2
    for step, name in enumerate(result.return_value):
        checkpoint = storage / "run" / name
        manifest = manifest_of(checkpoint)
        assert (manifest["metrics"]["step"], manifest["ranks"]) == (step, [0, 1])
        assert {file["path"] for file in manifest["files"]} == {"model.0", "model.1"}
        assert (checkpoint / "model.1").read_text() == f"1 of {step}"
    assert result.checkpoint is not None and result.checkpoint.path == str(storage / "run" / result.return_value[1])


def test_no_upload_keeps_what_is_in_place_and_touches_none_of_it(storage: Path) -> None:
    def function() -> list[int]:
        import os

        from carril import train

        rank = train.get_context().get_world_rank()
        inodes = []
        for step in range(2):
            place = train.get_context().get_storage().build_checkpoint_path_from_name(f"step-{step}")
            os.makedirs(place, exist_ok=True)
            file = os.path.join(place, f"model.{rank}")
            with open(file, "w") as opened:
                opened.write(f"{rank} of {step}")
            inodes.append(os.stat(file).st_ino)
            train.report({"step": step}, checkpoint=train.Checkpoint(place), checkpoint_upload_mode="NO_UPLOAD")
        return inodes

    result = fit(function, storage, name="run")
    for step in range(2):
        checkpoint = storage / "run" / f"step-{step}"
        assert manifest_of(checkpoint)["metrics"]["step"] == step
        assert os.stat(checkpoint / "model.0").st_ino == result.return_value[step]
    assert [Path(one.path).name for one, _ in result.best_checkpoints] == ["step-0", "step-1"]


def test_no_upload_waits_for_every_rank_before_it_looks_at_the_files(storage: Path) -> None:
    """Rank 0 reports while rank 1 has written half of its file into the same directory."""

    def function(config: dict[str, Any]) -> None:
        import os
        import time

        from carril import train

        def wait_for(path: str) -> None:
            while not os.path.exists(path):
                time.sleep(0.001)

        rank = train.get_context().get_world_rank()
        place = train.get_context().get_storage().build_checkpoint_path_from_name("both")
        os.makedirs(place, exist_ok=True)
        half, reported = os.path.join(place, "model.1"), os.path.join(config["place"], "reported")
        if rank == 0:
            with open(os.path.join(place, "model.0"), "w") as file:
                file.write("whole")
            wait_for(half)
        else:
            with open(half, "w") as file:
                file.write("half")
            wait_for(reported)
            with open(half, "a") as file:
                file.write(" and the rest")
        train.report({"step": 0}, checkpoint=train.Checkpoint(place), checkpoint_upload_mode="NO_UPLOAD")
        open(reported, "w").close()

    fit(function, storage, config={"place": str(storage)}, name="run")
    manifest = manifest_of(storage / "run" / "both")
    assert {file["path"]: file["size"] for file in manifest["files"]} == {"model.0": 5, "model.1": 17}


def test_no_upload_obeys_retention_and_resumes(storage: Path) -> None:
    def function(config: dict[str, Any]) -> Any:
        import os

        from carril import train

        latest = train.get_checkpoint()
        if latest is not None:
            return os.path.basename(latest.path)
        for step in range(3):
            place = train.get_context().get_storage().build_checkpoint_path_from_name(f"step-{step}")
            os.makedirs(place)
            with open(os.path.join(place, "model"), "w") as file:
                file.write(str(step))
            train.report({"step": step}, checkpoint=train.Checkpoint(place), checkpoint_upload_mode="NO_UPLOAD")
        train.get_all_reported_checkpoints()
        raise RuntimeError("on purpose")

    config = CheckpointConfig(num_to_keep=1)
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(function, storage, 1, {}, name="run", checkpoint_config=config)
    assert sorted(path.name for path in (storage / "run").glob("step-*")) == ["step-2"]
    assert fit(function, storage, 1, {}, name="run", checkpoint_config=config).return_value == "step-2"


def test_a_checkpoint_object_in_a_file_system_is_reported_like_any_other(tmp_path: Path, storage: Path) -> None:
    """Found there, not put there: it is brought over."""
    store = _arrow_subtree(tmp_path / "other")
    (store.directory / "old").mkdir(parents=True)
    (store.directory / "old" / "model").write_text("weights")
    filesystem, path = store.filesystem, f"{store.path}/old"

    def function() -> None:
        from carril import train

        train.report({}, checkpoint=train.Checkpoint(path, filesystem=filesystem))

    result = fit(function, storage, 1, name="run")
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "model").read_text() == "weights"
    assert Checkpoint(path, filesystem=filesystem).to_dict() == {"model": b"weights"}


def test_the_error_of_an_attempt_goes_when_the_run_finishes(store: Store) -> None:
    run = {"name": "mended", "storage_filesystem": store.filesystem}
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), Path(store.path), config={"steps": 4, "fail_at": 1}, **run)
    read = Result.from_path(f"{store.path}/mended", storage_filesystem=store.filesystem)
    assert "on purpose" in str(read.error) and (store.directory / "mended" / "error.json").exists()
    fit(saves(), Path(store.path), config={"steps": 4}, **run)
    assert Result.from_path(f"{store.path}/mended", storage_filesystem=store.filesystem).error is None
    assert not list((store.directory / "mended").glob("error.*"))
