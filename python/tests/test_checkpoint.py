"""Checkpoints: the object, what `report` keeps of several ranks, and what the directories must be."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from runs import NO_RESTART, fit

from carril.exceptions import CheckpointError
from carril.train import Checkpoint, ControllerError, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")


def _files(path: str | Path) -> dict[str, str]:
    root = Path(path)
    return {str(file.relative_to(root)): file.read_text() for file in root.rglob("*") if file.is_file()}


def _kept(path: str | Path) -> dict[str, str]:
    """The files of a checkpoint without its manifest."""
    return {name: text for name, text in _files(path).items() if name != ".manifest.json"}


def test_a_directory_is_pointed_at_and_neither_copied_nor_checked(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(tmp_path)
    assert checkpoint.path == str(tmp_path) and not checkpoint.is_temporary
    assert repr(checkpoint) == f"Checkpoint(filesystem=local, path={tmp_path})"
    with checkpoint.as_directory() as directory:
        assert directory == str(tmp_path)
    with pytest.raises(TypeError):
        os.fspath(checkpoint)  # type: ignore[call-overload]
    missing = Checkpoint(tmp_path / "none")
    with (
        pytest.raises(CheckpointError, match=r"the checkpoint's directory `.*none` does not exist"),
        missing.as_directory(),
    ):
        pass
    assert Checkpoint(f"file://{tmp_path}").path == str(tmp_path)


def test_to_directory_copies_to_a_place_or_to_a_new_one(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_text("A")
    (source / ".manifest.json").write_text("{}")
    target = Checkpoint(source, verify=False).to_directory(tmp_path / "target")
    assert target == str(tmp_path / "target") and _files(target) == {"deep/a": "A"}
    (source / ".manifest.json").unlink()
    new = Checkpoint(source).to_directory()
    try:
        assert new != str(source) and _files(new) == {"deep/a": "A"}
    finally:
        import shutil

        shutil.rmtree(new)


def test_a_dict_goes_in_and_comes_out_and_its_directory_goes_with_the_last_reference() -> None:
    checkpoint = Checkpoint.from_dict({"weights": [1.5], "f": len})
    assert checkpoint.to_dict() == {"weights": [1.5], "f": len}
    path, other = checkpoint.path, checkpoint
    del checkpoint
    assert os.path.isdir(path)
    del other
    assert not os.path.exists(path)
    with pytest.raises(TypeError, match="`data` is a list: it must be a dict"):
        Checkpoint.from_dict([])  # type: ignore[arg-type]


def test_bytes_and_pickles_carry_the_files_of_a_temporary_checkpoint(tmp_path: Path) -> None:
    data = pickle.dumps(Checkpoint.from_dict({"a": 1}))
    copy = pickle.loads(data)
    assert copy.to_dict() == {"a": 1} and copy.is_temporary
    (tmp_path / "x").write_text("X")
    assert pickle.loads(pickle.dumps(Checkpoint(tmp_path))).path == str(tmp_path)
    assert Checkpoint.from_bytes(Checkpoint(tmp_path).to_bytes()).to_dict() == {"x": b"X"}
    with pytest.raises(CheckpointError, match=r"a file `\.\./out` outside its directory"):
        Checkpoint.from_bytes(pickle.dumps({"../out": b""}))


def test_metadata_is_kept_inside(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"a": 1})
    checkpoint.update_metadata({"b": [2]})
    assert Checkpoint(tmp_path).get_metadata() == {"a": 1, "b": [2]}
    checkpoint.set_metadata({"c": 3})
    assert checkpoint.get_metadata() == {"c": 3}


def test_the_files_of_several_ranks_are_merged_into_one_checkpoint(storage: Path) -> None:
    def function() -> None:
        import os
        import tempfile

        from carril import train

        rank = train.get_context().get_world_rank()
        for step in range(2):
            with tempfile.TemporaryDirectory() as directory:
                os.makedirs(os.path.join(directory, "shards"))
                for name, text in ((f"shards/{rank}", f"{rank} of {step}"), ("common", "the same")):
                    with open(os.path.join(directory, name), "w") as file:
                        file.write(text)
                # Rank 1 has none in the first report.
                given = None if rank == 1 and step == 0 else train.Checkpoint.from_directory(directory)
                train.report({"step": step, "rank": rank}, checkpoint=given)

    result = fit(function, storage, workers=3)
    (first, first_metrics), (second, second_metrics) = result.best_checkpoints
    assert _kept(first.path) == {"shards/0": "0 of 0", "shards/2": "2 of 0", "common": "the same"}
    assert _kept(second.path) == {f"shards/{r}": f"{r} of 1" for r in range(3)} | {"common": "the same"}
    assert [Path(c.path).name for c in (first, second)] == ["checkpoint_000000", "checkpoint_000001"]
    assert (first_metrics["step"], first_metrics["rank"], second_metrics["step"]) == (0, 0, 1)
    assert first_metrics["checkpoint_dir_name"] == "checkpoint_000000"
    manifest = json.loads(Path(first.path, ".manifest.json").read_text())
    assert (manifest["iteration"], manifest["ranks"]) == (1, [0, 2])
    assert {file["path"]: file["size"] for file in manifest["files"]} == {"shards/0": 6, "shards/2": 6, "common": 8}
    assert not Path(str(result.path), ".staging").exists()


def test_rank_0_need_not_give_the_checkpoint(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        train.report({"rank": rank}, checkpoint=train.Checkpoint.from_dict({"of": rank}) if rank == 1 else None)

    result = fit(function, storage)
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"of": 1}
    assert result.best_checkpoints[0][1]["rank"] == 0


def test_two_ranks_that_disagree_about_a_file_are_both_named(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        train.report({"a": 1}, checkpoint=train.Checkpoint.from_dict({"of": rank}) if rank else None)
        train.collective.barrier()

    with pytest.raises(ControllerError) as caught:
        fit(function, storage, workers=3, name="conflict")
    error = caught.value
    assert isinstance(error.controller_failure, CheckpointError) and error.code == "checkpoint-conflict"
    assert "ranks 1 and 2 both reported `dict_checkpoint.pkl` in one checkpoint, with different content" in str(error)
    assert "hint: let one rank write the file, or give each rank's file a name of its own" in str(error)
    assert not list((storage / "conflict").glob("checkpoint_*")) and not (storage / "conflict" / ".staging").exists()


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("missing", "the checkpoint directory `{place}` does not exist"),
        ("empty", "the checkpoint directory `{place}` is empty"),
        ("file", "the checkpoint directory `{place}` is not a directory"),
        ("storage", "the checkpoint directory `{place}` holds the run's own directory"),
    ],
)
def test_a_directory_that_is_no_checkpoint_is_an_error_in_the_function(storage: Path, place: str, text: str) -> None:
    (storage / "empty").mkdir()
    (storage / "file").write_text("x")
    given = str(storage if place == "storage" else storage / place)

    def function(config: dict[str, Any]) -> str:
        from carril import train

        try:
            train.report({"step": 0}, checkpoint=train.Checkpoint(config["path"]))
        except Exception as error:
            train.report({"step": 1}, checkpoint=train.Checkpoint.from_dict({"good": True}))
            return f"{type(error).__name__}: {error}"
        return "nothing was raised"

    result = fit(function, storage, workers=1, config={"path": given})
    assert result.return_value.startswith(f"{CheckpointError.__name__}: {text.format(place=given)}")
    assert [row["step"] for row in result.rank_metrics(0)] == [1], "the report that failed is not counted"
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"good": True}


def test_a_checkpoint_must_be_one(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({}, checkpoint="/some/where")  # type: ignore[arg-type]

    with pytest.raises(WorkerGroupError, match=r"`checkpoint` is a str: it must be a Checkpoint\nhint: for example"):
        fit(function, storage, workers=1)


def test_what_the_caller_does_to_its_directory_afterwards_does_not_change_what_is_kept(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        import os
        import shutil

        from carril import train

        directory = os.path.join(config["place"], "mine")
        for step in range(3):
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, "model"), "w") as file:
                file.write(f"of step {step}")
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))
            # In place, as frameworks that keep one file do: a hard link would show it.
            with open(os.path.join(directory, "model"), "r+") as file:
                file.write("overwritten")
            if step == 1:
                shutil.rmtree(directory)

    result = fit(function, storage, workers=1, config={"place": str(storage)})
    texts = [_kept(checkpoint.path) for checkpoint, _ in result.best_checkpoints]
    assert texts == [{"model": f"of step {step}"} for step in range(3)]


def test_a_directory_that_is_given_away_is_gone_afterwards_and_another_stays(storage: Path) -> None:
    def function(config: dict[str, Any]) -> list[bool]:
        import os

        from carril import train

        stays = []
        for give in (True, False):
            directory = os.path.join(config["place"], f"give-{give}")
            os.makedirs(directory)
            with open(os.path.join(directory, "model"), "w") as file:
                file.write(str(give))
            train.report({}, checkpoint=train.Checkpoint(directory), delete_local_checkpoint_after_upload=give)
            stays.append(os.path.exists(directory))
        return stays

    result = fit(function, storage, workers=1, config={"place": str(storage)})
    assert result.return_value == [False, True]
    assert [_kept(checkpoint.path)["model"] for checkpoint, _ in result.best_checkpoints] == ["True", "False"]


def test_a_checkpoint_may_have_a_name_of_its_own_once(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        for name in ("best", "best"):
            given = train.Checkpoint.from_dict({"x": 1}) if rank == 0 else None
            train.report({}, checkpoint=given, checkpoint_dir_name=name if rank == 0 else None)
        train.collective.barrier()

    with pytest.raises(ControllerError, match="a checkpoint named `best` exists already\nhint: give each") as caught:
        fit(function, storage, name="named")
    assert caught.value.code == "checkpoint-conflict"
    assert Checkpoint(storage / "named" / "best").to_dict() == {"x": 1}


@pytest.mark.parametrize("name", ["../out", "a/b", "/tmp/out", "", ".staging", "ranks", "run.json"])
def test_a_name_cannot_leave_the_run_s_directory_or_take_the_place_of_its_files(storage: Path, name: str) -> None:
    def function(config: dict[str, Any]) -> None:
        from carril import train

        train.report({}, checkpoint=train.Checkpoint.from_dict({"x": 1}), checkpoint_dir_name=config["name"])
        train.collective.barrier()

    with pytest.raises((ControllerError, WorkerGroupError)) as caught:
        fit(function, storage, workers=1, config={"name": name}, name="run")
    if name in ("ranks", "run.json"):
        assert f"a checkpoint named `{name}` exists already" in str(caught.value)
    else:
        assert f"`checkpoint_dir_name` is {name!r}: it must be the name of a directory" in str(caught.value)
    assert sorted(entry.name for entry in storage.iterdir()) == ["run"]


def test_get_checkpoint_after_a_report_is_the_one_that_was_just_kept(storage: Path) -> None:
    def function() -> list[Any]:
        from carril import train

        rank = train.get_context().get_world_rank()
        seen = [train.get_checkpoint()]
        for step in range(3):
            given = train.Checkpoint.from_dict({"step": step}) if rank == 0 and step != 1 else None
            train.report({"step": step}, checkpoint=given)
            latest = train.get_checkpoint()
            seen.append(latest and (latest.path, latest.to_dict()["step"]))
        return seen

    result = fit(function, storage)
    path = str(result.path)
    first, third = (f"{path}/checkpoint_000000", 0), (f"{path}/checkpoint_000001", 2)
    assert result.return_value == [None, first, first, third]


def test_a_killed_worker_leaves_none_of_its_temporary_checkpoints(storage: Path) -> None:
    def function() -> None:
        import os
        import signal

        from carril import train

        keep = train.Checkpoint.from_dict({"a": 1})
        train.report({"path": keep.path})
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerGroupError):
        fit(function, storage, workers=1, name="killed", failure_config=NO_RESTART)
    (line,) = (storage / "killed" / "result.json").read_text().splitlines()
    assert not os.path.exists(json.loads(line)["path"])
