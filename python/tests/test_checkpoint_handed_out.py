"""A damaged checkpoint is handed out by nobody: not by a result, not by the object, not to a run that begins with it.

On a local path, in a bucket and in a file system object. Sizes are compared when checkpoints are listed, contents when
they are read.
"""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from checkpoint_runs import saves, step_of
from runs import fit
from s3_server import Place, S3Server, place_fixture, s3_fixture, s3_variables_fixture  # noqa: F401

from carril.exceptions import CheckpointError
from carril.train import Checkpoint, DataParallelTrainer, Result, RunConfig, ScalingConfig, WorkerGroupError

pytestmark = pytest.mark.usefixtures("s3_variables", "head")


def begin(function: Callable[..., Any], storage: Path, name: str, checkpoint: Checkpoint) -> Result:
    """A run that begins with a checkpoint of another one."""
    return DataParallelTrainer(
        function,
        train_loop_config={"steps": 4},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, name=name),
        resume_from_checkpoint=checkpoint,
    ).fit()


class Kept:
    """A run of three checkpoints, where its files really are, and how a user gets to it."""

    def __init__(self, directory: Path, path: str, filesystem: Any = None) -> None:
        self.directory, self.path, self.filesystem = directory, path, filesystem

    def checkpoint(self, **options: Any) -> Checkpoint:
        return Checkpoint(f"{self.path}/checkpoint_000002", self.filesystem, **options)

    def result(self, **options: Any) -> Result:
        return Result.from_path(self.path, self.filesystem, **options)

    @property
    def newest(self) -> Path:
        return self.directory / "checkpoint_000002"


@pytest.fixture(params=["local", "s3", "pyarrow"])
def kept(request: pytest.FixtureRequest, storage: Path, place: Place) -> Kept:
    name = f"whole_{os.urandom(4).hex()}"
    fit(saves(), storage, config={"steps": 3}, name=name)
    if request.param == "s3":
        shutil.copytree(storage / name, place.directory / name)
        return Kept(place.directory / name, f"{place.uri}/{name}")
    if request.param == "pyarrow":
        subtree = pyarrow.fs.SubTreeFileSystem(str(storage), pyarrow.fs.LocalFileSystem())
        return Kept(storage / name, name, subtree)
    return Kept(storage / name, str(storage / name))


def flip(checkpoint: Path) -> None:
    data = bytearray((checkpoint / "shards" / "1").read_bytes())
    data[0] ^= 1
    (checkpoint / "shards" / "1").write_bytes(data)


def same_size_and_time(checkpoint: Path) -> None:
    """As a copy that keeps times would leave it."""
    before = (checkpoint / "shards" / "1").stat()
    flip(checkpoint)
    os.utime(checkpoint / "shards" / "1", ns=(before.st_atime_ns, before.st_mtime_ns))


def remove(checkpoint: Path) -> None:
    (checkpoint / "shards" / "1").unlink()


def cut(checkpoint: Path) -> None:
    (checkpoint / "shards" / "1").write_bytes(b"1")


CONTENTS: dict[str, Callable[[Path], None]] = {"flipped": flip, "same time": same_size_and_time}
SIZES: dict[str, Callable[[Path], None]] = {"missing": remove, "cut": cut}


def _read_all(checkpoint: Checkpoint, **options: Any) -> None:
    with checkpoint.as_directory(**options) as directory:
        assert sorted(os.listdir(directory))


WAYS: dict[str, Callable[[Checkpoint], object]] = {
    "to_dict": lambda checkpoint: checkpoint.to_dict(),
    "as_directory": _read_all,
    "to_directory": lambda checkpoint: shutil.rmtree(checkpoint.to_directory()),
    "to_bytes": lambda checkpoint: checkpoint.to_bytes(),
    "pickled": lambda checkpoint: pickle.loads(pickle.dumps(checkpoint)).to_dict(),
}


@pytest.mark.parametrize("what", [*CONTENTS, *SIZES])
def test_every_way_to_the_files_names_what_is_damaged(kept: Kept, what: str, tmp_path: Path) -> None:
    # Read once while it is whole: what this process has compared before must not hide what happens later.
    assert set(kept.checkpoint().to_dict()) == {"step", "shards/0", "shards/1"}
    {**CONTENTS, **SIZES}[what](kept.newest)
    for name, way in WAYS.items():
        with pytest.raises(CheckpointError, match=r"checkpoint_000002` is damaged: .*`shards/1`") as caught:
            way(kept.checkpoint())
        told = str(caught.value)
        assert "carril checkpoints" in told and "verify=False" in told, (name, told)
        way(kept.checkpoint(verify=False))
    _read_all(kept.checkpoint(), verify=False)
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_text("mine")
    with pytest.raises(CheckpointError, match="shards/1"):
        kept.checkpoint().to_directory(there)
    assert os.listdir(there) == ["mine"], "nothing of a damaged one is left beside the user's files"
    assert kept.checkpoint().to_directory(there, verify=False) == str(there)
    assert {"mine", "step"} <= set(os.listdir(there)) and ".manifest.json" not in os.listdir(there)


@pytest.mark.parametrize("what", SIZES)
def test_a_result_lists_only_checkpoints_whose_files_are_there_at_their_size(kept: Kept, what: str) -> None:
    SIZES[what](kept.newest)
    with pytest.warns(UserWarning, match=r"checkpoint_000002` is passed over: .*`shards/1`") as told:
        result = kept.result()
    assert len(told) == 1
    assert result.checkpoint is not None and step_of(result.checkpoint) == 1
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1]
    anyhow = kept.result(verify=False)
    assert anyhow.checkpoint is not None and step_of(anyhow.checkpoint) == 2


def test_what_a_result_gives_is_compared_when_it_is_read(kept: Kept) -> None:
    flip(kept.newest)
    result = kept.result()
    assert result.checkpoint is not None
    for checkpoint in (result.checkpoint, result.best_checkpoints[-1][0]):
        with pytest.raises(CheckpointError, match=r"`shards/1` has checksum"):
            checkpoint.to_dict()
    assert step_of(result.best_checkpoints[0][0]) == 0


def test_a_run_does_not_begin_with_a_damaged_one(kept: Kept, storage: Path) -> None:
    flip(kept.newest)
    with pytest.raises(WorkerGroupError, match=r"is damaged: .*`shards/1`"):
        begin(saves(), storage, "begins", kept.checkpoint())
    assert begin(saves(), storage, "anyhow", kept.checkpoint(verify=False)).return_value == 3
    remove(kept.newest)
    with pytest.raises(CheckpointError, match=r"begin with, .*is damaged: `shards/1` is missing"):
        begin(saves(), storage, "never", kept.checkpoint())
    assert not (storage / "never").exists()


@pytest.mark.parametrize("way", ["stored", "from_directory"])
def test_a_damaged_one_is_not_stored_again_as_a_whole_one(storage: Path, way: str) -> None:
    fit(saves(), storage, config={"steps": 1}, name="first")
    flip(storage / "first" / "checkpoint_000000")

    def function(config: dict[str, Any]) -> None:
        from carril import train

        train.report({}, checkpoint=getattr(train.Checkpoint, config["way"])(config["path"]))

    with pytest.raises(WorkerGroupError, match=r"is damaged: .*`shards/1`"):
        fit(function, storage, config={"way": way, "path": str(storage / "first" / "checkpoint_000000")}, name="again")


def test_a_copy_of_a_stored_one_may_be_changed_and_reported(storage: Path) -> None:
    fit(saves(), storage, config={"steps": 1}, name="first")

    def function(config: dict[str, Any]) -> None:
        from pathlib import Path

        from carril import train

        copy = train.Checkpoint(config["path"]).to_directory(config["copy"])
        Path(copy, "step").write_text("7")
        train.report({}, checkpoint=train.Checkpoint(copy))

    result = fit(
        function,
        storage,
        workers=1,
        config={"path": str(storage / "first" / "checkpoint_000000"), "copy": str(storage / "copy")},
        name="again",
    )
    assert step_of(result.checkpoint) == 7


def test_a_directory_of_the_user_s_own_is_taken_as_it_is(tmp_path: Path, storage: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1")
    mine = Checkpoint(tmp_path / "mine")
    assert mine.to_dict() == {"weights": b"1"}
    (tmp_path / "mine" / "weights").write_text("2")
    assert mine.to_dict() == {"weights": b"2"}
    assert Checkpoint(mine.to_directory(tmp_path / "copy")).to_dict() == {"weights": b"2"}


def test_what_is_put_beside_the_files_later_comes_along(kept: Kept, tmp_path: Path) -> None:
    checkpoint = kept.checkpoint()
    checkpoint.set_metadata({"note": "mine"})
    checkpoint.set_preprocessor({"scale": 2})
    checkpoint.set_preprocessor({"scale": 3})
    assert checkpoint.get_preprocessor() == {"scale": 3}
    copy = Checkpoint(checkpoint.to_directory(tmp_path / "copy"))
    assert copy.get_metadata() == {"note": "mine"}
    assert set(copy.to_dict()) >= {"step", "shards/0", "shards/1"}


def test_a_preprocessor_that_was_stored_may_be_replaced_and_not_damaged(storage: Path) -> None:
    def function() -> None:
        from carril import train

        checkpoint = train.Checkpoint.from_dict({"weights": 1})
        checkpoint.set_preprocessor({"scale": 1})
        train.report({}, checkpoint=checkpoint)

    result = fit(function, storage, name="pre", workers=1)
    checkpoint = result.checkpoint
    assert checkpoint is not None and checkpoint.get_preprocessor() == {"scale": 1}
    checkpoint.set_preprocessor({"scale": 2})
    assert checkpoint.get_preprocessor() == {"scale": 2} and checkpoint.to_dict() == {"weights": 1}
    Path(checkpoint.path, "preprocessor.pkl").write_bytes(b"something else")
    with pytest.raises(CheckpointError, match=r"is damaged: .*`preprocessor\.pkl`"):
        checkpoint.get_preprocessor()
    checkpoint.set_metadata({"a": 1})
    Path(checkpoint.path, ".metadata.json").write_text('{"a": ')
    with pytest.raises(CheckpointError, match=r"\.metadata\.json` of the checkpoint"):
        checkpoint.get_metadata()


def test_the_workers_of_a_run_compare_each_file_once(storage: Path) -> None:
    first = fit(saves(), storage, config={"steps": 1, "size": 1 << 20}, name="large")
    assert first.checkpoint is not None

    def function(config: dict[str, Any]) -> int:
        from carril import train

        def read() -> int:
            with open("/proc/self/io") as file:
                return int(file.readline().split()[1])

        rank, checkpoint = train.get_context().get_world_rank(), train.get_checkpoint()
        assert checkpoint is not None
        if rank == 1:
            train.collective.barrier()
        before = read()
        with checkpoint.as_directory():
            pass
        once = read()
        with checkpoint.as_directory():
            pass
        twice = read()
        if rank == 0:
            train.collective.barrier()
            assert once - before > 1 << 20
        else:
            assert once - before < 1 << 20
        assert twice - once < 1 << 20
        return 1

    assert begin(function, storage, "reads", first.checkpoint).return_value == 1
