"""`report` with a checkpoint in each of its ways, what is kept of it, and what a run that goes on finds.

The files are looked at in the run's own directory. Storage behind a URI is in `test_s3`.
"""

import warnings
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from runs import fit

from carril.exceptions import ConfigError, RunExistsError
from carril.train import Checkpoint, CheckpointConfig, CheckpointUploadMode, DataParallelTrainer, Result

pytestmark = pytest.mark.usefixtures("head")


def _kept(path: str | Path) -> dict[str, str]:
    root = Path(path)
    files = {str(file.relative_to(root)): file for file in root.rglob("*") if file.is_file()}
    assert ".manifest.json" in files, "it was committed"
    return {name: file.read_text() for name, file in files.items() if name != ".manifest.json"}


@pytest.mark.parametrize(
    "mode", [CheckpointUploadMode.ASYNC, "async", "ASYNC", CheckpointUploadMode.SYNC, "Sync", None]
)
@pytest.mark.parametrize("delete", [None, True, False])
def test_a_directory_is_given_away_with_async_or_when_it_is_said(storage: Path, mode: Any, delete: bool | None) -> None:
    def function(config: dict[str, Any]) -> bool:
        import os

        from carril import train

        directory = os.path.join(config["place"], "mine")
        os.makedirs(directory)
        with open(os.path.join(directory, "model"), "w") as file:
            file.write("weights")
        train.report(
            {},
            checkpoint=train.Checkpoint(directory),
            checkpoint_upload_mode=config["mode"],
            delete_local_checkpoint_after_upload=config["delete"],
        )
        return os.path.exists(directory)

    result = fit(function, storage, workers=1, config={"place": str(storage), "mode": mode, "delete": delete})
    name = getattr(mode, "name", mode) or "SYNC"
    assert result.return_value is (delete is False or (delete is None and name.upper() == "SYNC"))
    assert result.checkpoint is not None and _kept(result.checkpoint.path) == {"model": "weights"}


def test_a_committed_checkpoint_that_is_reported_again_is_copied_and_never_given_away(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        train.report({"step": 1}, checkpoint=train.get_checkpoint(), checkpoint_upload_mode="ASYNC")

    result = fit(function, storage, workers=1)
    assert [checkpoint.to_dict() for checkpoint, _ in result.best_checkpoints] == [{"a": 1}, {"a": 1}]


def test_a_mode_that_is_none_is_one_error_with_the_names(storage: Path) -> None:
    def function() -> list[str]:
        from carril import train

        said = []
        for mode in ("LATER", 3, train.CheckpointConsistencyMode.COMMITTED):
            try:
                train.report({}, checkpoint=train.Checkpoint("/x"), checkpoint_upload_mode=mode)  # type: ignore[arg-type]
            except ValueError as error:
                said.append(str(error))
        return said

    said = DataParallelTrainer(function, scaling_config={"num_workers": 0}).fit().return_value
    text = "`checkpoint_upload_mode` is {}: it must be one of SYNC, ASYNC, NO_UPLOAD"
    assert said == [text.format(given) for given in ("'LATER'", "3", "'COMMITTED'")]


def test_files_that_are_in_the_run_s_storage_stay_where_they_are(storage: Path) -> None:
    def function() -> list[Any]:
        import os

        from carril import train

        context = train.get_context()
        rank, place = context.get_world_rank(), context.get_storage().build_checkpoint_path_from_name("mine")
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, f"shard_{rank}")
        with open(path, "w") as file:
            file.write(f"of {rank}")
        train.collective.barrier()
        inode = os.stat(path).st_ino
        train.report({"rank": rank}, checkpoint=train.Checkpoint(place), checkpoint_upload_mode="NO_UPLOAD")
        latest = train.get_checkpoint()
        return [os.stat(path).st_ino == inode, latest and latest.path]

    result = fit(function, storage, workers=2, name="own")
    assert result.return_value == [True, str(storage / "own" / "mine")]
    assert result.checkpoint is not None and _kept(result.checkpoint.path) == {"shard_0": "of 0", "shard_1": "of 1"}


def test_files_elsewhere_are_refused_without_upload_and_the_run_goes_on(storage: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "model").write_text("x")

    def function(config: dict[str, Any]) -> list[str]:
        import os

        from carril import train

        said = []
        root = train.get_context().get_storage().experiment_fs_path
        os.makedirs(os.path.join(root, "deep", "er"))
        for path in (config["else"], root, os.path.join(root, "deep", "er"), os.path.join(root, ".hidden"), "s3://b/x"):
            try:
                train.report({}, checkpoint=train.Checkpoint(path), checkpoint_upload_mode="NO_UPLOAD")
            except ValueError as error:
                said.append(f"{type(error).__name__}: {error}".replace(path, "PATH", 1))
        train.report({"step": 1}, checkpoint=train.Checkpoint.from_dict({"good": True}))
        return said

    result = fit(function, storage, workers=1, config={"else": str(tmp_path / "else")}, name="refused")
    assert len(result.return_value) == 5
    for text in result.return_value:
        assert text.startswith(
            "ConfigError: `checkpoint_upload_mode=NO_UPLOAD`: the checkpoint `PATH` is not a directory"
        )
        assert f"right inside the run's storage `{storage / 'refused'}`\nhint: " in text
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"good": True}
    assert [row["step"] for row in result.rank_metrics(0)] == [1]


@pytest.mark.parametrize("name", [None, "chosen"])
@pytest.mark.parametrize("delete", [None, True])
def test_an_upload_function_stores_the_files_under_a_name_that_all_ranks_share(
    storage: Path, name: str | None, delete: bool | None
) -> None:
    def function(config: dict[str, Any]) -> list[Any]:
        import os
        import shutil
        import tempfile

        from carril import train

        context, names = train.get_context(), []

        def upload(checkpoint: train.Checkpoint, name: str) -> train.Checkpoint:
            names.append(name)
            target = context.get_storage().build_checkpoint_path_from_name(name)
            shutil.copytree(checkpoint.path, target, dirs_exist_ok=True)
            train.collective.barrier()
            return train.Checkpoint(target)

        directory = tempfile.mkdtemp(dir=config["place"])
        with open(os.path.join(directory, f"shard_{context.get_world_rank()}"), "w") as file:
            file.write(str(context.get_world_rank()))
        train.report({"step": 0})
        train.report(
            {"step": 1},
            checkpoint=train.Checkpoint(directory),
            checkpoint_dir_name=config["name"],
            checkpoint_upload_fn=upload,
            delete_local_checkpoint_after_upload=config["delete"],
        )
        return [*names, os.path.exists(directory)]

    config = {"place": str(storage), "name": name, "delete": delete}
    result = fit(function, storage, workers=2, config=config, name="run")
    used, stays = result.return_value
    assert stays is (delete is None) and (used == "chosen" if name else used.startswith("checkpoint_000001_"))
    assert result.checkpoint is not None and result.checkpoint.path == str(storage / "run" / used)
    assert _kept(result.checkpoint.path) == {"shard_0": "0", "shard_1": "1"}


def test_an_upload_function_that_returns_something_else_is_told(storage: Path, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> list[str]:
        from carril import train

        said = []
        for returned in (None, "/x", train.Checkpoint(config["else"])):
            try:
                train.report(
                    {},
                    checkpoint=train.Checkpoint.from_dict({}),
                    checkpoint_upload_fn=lambda checkpoint, name, returned=returned: returned,  # type: ignore[misc]
                )
            except ValueError as error:
                said.append(str(error).splitlines()[0])
        try:
            train.report({}, checkpoint=train.Checkpoint.from_dict({}), checkpoint_upload_fn=3)  # type: ignore[arg-type]
        except TypeError as error:
            said.append(str(error))
        return said

    result = fit(function, storage, workers=1, config={"else": str(tmp_path)}, name="run")
    must = "it must return a Checkpoint in the run's storage"
    assert result.return_value == [
        f"`checkpoint_upload_fn` returned a NoneType: {must}",
        f"`checkpoint_upload_fn` returned a str: {must}",
        f"`checkpoint_upload_fn` returned a checkpoint: its place `{tmp_path}` is not a directory right inside the run's "
        f"storage `{storage / 'run'}`",
        "`checkpoint_upload_fn` is an int: it must be a function",
    ]
    assert result.checkpoint is None


def test_every_kept_checkpoint_is_listed_the_best_last(storage: Path) -> None:
    def function() -> list[Any]:
        from carril import train

        for step, loss in enumerate((3.0, 1.0, 2.0, float("nan"))):
            train.report({"loss": loss, "step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
        listed = []
        for mode in (train.CheckpointConsistencyMode.COMMITTED, "validated"):
            found = train.get_all_reported_checkpoints(consistency_mode=mode, timeout_s=30)
            listed.append([(one.checkpoint.to_dict()["step"], one.metrics["step"], one.status.name) for one in found])
        said = []
        for arguments in ({"consistency_mode": "SOON"}, {"timeout_s": -1}, {"timeout_s": "1"}):
            try:
                train.get_all_reported_checkpoints(**arguments)  # type: ignore[arg-type]
            except ValueError as error:
                said.append(str(error))
        return [*listed, said]

    keep = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    result = fit(function, storage, workers=1, checkpoint_config=keep)
    first, second, said = result.return_value
    # The newest is kept beside the best two, whatever its score; NaN is the worst.
    assert first == second == [(step, step, "COMMITTED") for step in (3, 2, 1)]
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints] == [3, 2, 1]
    assert said == [
        "`consistency_mode` is 'SOON': it must be one of COMMITTED, VALIDATED",
        "`timeout_s` is -1: it must be a number of seconds, or None to wait",
        "`timeout_s` is '1': it must be a number of seconds, or None to wait",
    ]


def test_in_this_process_every_way_keeps_the_newest(tmp_path: Path) -> None:
    def function() -> list[Any]:
        from carril import train

        assert train.get_all_reported_checkpoints() == []
        for step, mode in enumerate(("SYNC", "ASYNC", "NO_UPLOAD")):
            train.report({"step": step}, train.Checkpoint.from_dict({"step": step}), checkpoint_upload_mode=mode)
        (one,) = train.get_all_reported_checkpoints()
        train.report(
            {"step": 3}, train.Checkpoint.from_dict({}), checkpoint_upload_fn=lambda checkpoint, name: one.checkpoint
        )
        newest = train.get_checkpoint()
        return [one.metrics, one.checkpoint.to_dict(), newest and newest.to_dict()]

    result = DataParallelTrainer(function, scaling_config={"num_workers": 0}).fit()
    assert result.return_value == [{"step": 2}, {"step": 2}, {"step": 2}]


def _arrow(root: Path) -> Any:
    return pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem())


def _fsspec(root: Path) -> Any:
    return DirFileSystem(path=str(root), fs=fsspec.filesystem("file"))


@pytest.mark.parametrize("family", [_arrow, _fsspec], ids=["pyarrow", "fsspec"])
def test_a_run_in_a_file_system_object_is_read_through_it(storage: Path, family: Any) -> None:
    def function() -> list[Any]:
        from carril import train

        rank, store = train.get_context().get_world_rank(), train.get_context().get_storage()
        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"step": 0}) if rank == 0 else None)
        # Only the rank that gave it waits for it.
        newest = train.get_checkpoint() if rank == 0 else None
        if newest is None:
            return []
        return [newest.path, newest.to_dict(), newest.filesystem == store.storage_filesystem, store.experiment_fs_path]

    result = fit(function, Path("runs"), workers=2, name="far", storage_filesystem=family(storage))
    assert result.return_value == ["runs/far/checkpoint_000000", {"step": 0}, True, "runs/far"]
    again = Result.from_path("runs/far", storage_filesystem=family(storage))
    for one in (result, again):
        assert one.path == "runs/far" and one.filesystem == family(storage) and one.log_dir is None
        assert one.checkpoint is not None and one.checkpoint.to_dict() == {"step": 0}
        assert [row["step"] for row in one.rank_metrics(0)] == [0] == list(one.metrics_dataframe["step"])
    assert (storage / "runs" / "far" / "checkpoint_000000" / ".manifest.json").is_file()


def test_a_file_system_that_cannot_be_sent_is_named(storage: Path) -> None:
    class Locked(DirFileSystem):  # type: ignore[misc]
        def __reduce__(self) -> Any:
            raise TypeError("it is tied to this process")

    filesystem = Locked(path=str(storage), fs=fsspec.filesystem("file"))
    with pytest.raises(ConfigError, match=r"`storage_filesystem`, a Locked, cannot be sent to the workers: Type"):
        fit(lambda: None, Path("runs"), workers=1, storage_filesystem=filesystem)
    assert list(storage.iterdir()) == []


def test_a_run_that_has_finished_goes_on_with_resume_alone(storage: Path) -> None:
    def function() -> list[Any]:
        from carril import train

        before = train.get_checkpoint()
        step = before.to_dict()["step"] + 1 if before else 0
        train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
        return [step]

    assert fit(function, storage, workers=1, name="again").return_value == [0]
    with pytest.raises(RunExistsError):
        fit(function, storage, workers=1, name="again")
    result = fit(function, storage, workers=1, name="again", resume=True)
    assert result.return_value == [1]
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints] == [0, 1]
    assert fit(function, storage, workers=1, name="new", resume=True).return_value == [0]


def test_from_path_names_a_damaged_checkpoint_and_passes_over_it(storage: Path) -> None:
    def function() -> None:
        from carril import train

        for step in range(2):
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))

    result = fit(function, storage, workers=1, name="run")
    assert result.checkpoint is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Result.from_path(storage / "run")
    manifest = Path(result.checkpoint.path, ".manifest.json")
    manifest.write_text(manifest.read_text().replace('"iteration":2', '"iteration":9'))
    with pytest.warns(
        UserWarning, match=r"the checkpoint `.*/checkpoint_000001` is passed over: `\.manifest\.json`"
    ) as told:
        again = Result.from_path(storage / "run")
    assert told[0].filename == __file__
    assert again.checkpoint is not None and again.checkpoint.to_dict() == {"step": 0}
    assert len(again.best_checkpoints) == 1


def test_a_checkpoint_of_another_place_is_brought_and_stored(storage: Path, tmp_path: Path) -> None:
    (tmp_path / "else" / "a").mkdir(parents=True)
    (tmp_path / "else" / "a" / "model").write_text("weights")

    def function(config: dict[str, Any]) -> None:
        from carril import train

        for mode in ("SYNC", "ASYNC"):
            train.report({}, train.Checkpoint("a", filesystem=config["filesystem"]), checkpoint_upload_mode=mode)

    result = fit(function, storage, workers=1, config={"filesystem": _arrow(tmp_path / "else")})
    assert [_kept(checkpoint.path) for checkpoint, _ in result.best_checkpoints] == [{"model": "weights"}] * 2
    assert (tmp_path / "else" / "a" / "model").exists() and isinstance(result.checkpoint, Checkpoint)
