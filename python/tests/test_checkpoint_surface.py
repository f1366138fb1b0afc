"""The checkpoint as an object: where it may be, what is copied from it, and what is read back, without a run.

Files outside a local path are in file system objects of pyarrow and fsspec here; those in S3 are in `test_s3`.
"""

import json
import os
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, StorageError
from carril.train import Checkpoint, RunConfig
from carril.train._downloads import downloaded
from carril.train._places import place


def _arrow(root: Path) -> Any:
    return pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem())


def _fsspec(root: Path) -> Any:
    return DirFileSystem(path=str(root), fs=fsspec.filesystem("file"))


FAMILIES = [pytest.param(_arrow, id="pyarrow"), pytest.param(_fsspec, id="fsspec")]


def _files(path: str | Path) -> dict[str, str]:
    root = Path(path)
    return {str(file.relative_to(root)): file.read_text() for file in root.rglob("*") if file.is_file()}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The root of a file system with a checkpoint at `runs/a`."""
    root = tmp_path / "there"
    (root / "runs" / "a" / "deep").mkdir(parents=True)
    (root / "runs" / "a" / "model").write_text("weights")
    (root / "runs" / "a" / "deep" / "b").write_text("B")
    return root


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a/b/", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("file://localhost/a", "/a"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a?region=eu-west-1", "s3://bucket/a?region=eu-west-1"),
        ("gs://bucket", "gs://bucket"),
        ("gcs://bucket/x", "gcs://bucket/x"),
        ("az://container/x", "az://container/x"),
        ("abfs://container/x", "abfs://container/x"),
    ],
)
def test_a_path_is_absolute_and_a_uri_stays_whole(given: str, path: str) -> None:
    assert Checkpoint(given).path == path


def test_a_relative_path_and_the_home_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert Checkpoint("x").path == str(tmp_path / "x") and Checkpoint("~/x").path == "/home/me/x"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Checkpoint("hdfs://host/x"), ConfigError, "`path` is `hdfs://host/x`: there is no storage for `hdfs://`"),
        (lambda: Checkpoint("s3://"), ConfigError, "`path` is `s3://`: it names no bucket"),
        (lambda: Checkpoint("file://a/b"), ConfigError, "`path` is `file://a/b`: a `file://` URI needs three slashes"),
        (lambda: Checkpoint(Path("s3://bucket/x")), ConfigError, "`path` is `s3:/bucket/x`, which was a URI before"),
        (lambda: Checkpoint(3), ConfigTypeError, "`path` is an int: it must be a path"),  # type: ignore[arg-type]
        (lambda: Checkpoint("/x", filesystem=3), ConfigTypeError, "`filesystem` is an int: it must be a file system of"),
        (
            lambda: Checkpoint("/x", filesystem=pyarrow.fs.S3FileSystem),
            ConfigTypeError,
            "`filesystem` is a type: it must be a file system of pyarrow or fsspec\nhint: for example",
        ),
        (lambda: Checkpoint.from_uri("/x"), ConfigError, "`uri` is '/x': it must be a URI, for example `s3://bucket/path`"),
        (lambda: Checkpoint("/x").to_uri("/y"), ConfigError, "`uri` is '/y': it must be a URI"),
        (lambda: Checkpoint("/").to_directory("s3://b/x"), ConfigError, "`path` is `s3://b/x`: it must be a local path"),
        (lambda: Checkpoint.from_checkpoint("/x"), ConfigTypeError, "`other` is a str: it must be a Checkpoint"),  # type: ignore[arg-type]
        (
            lambda: RunConfig(storage_filesystem=_fsspec(Path("/x"))),
            ConfigError,
            "`RunConfig` has a `storage_filesystem` and no `storage_path`\nhint: give the path in that file system",
        ),
        (
            lambda: RunConfig(storage_filesystem=_fsspec(Path("/x")), storage_path="s3://b/x"),
            ConfigError,
            "`RunConfig` has a `storage_filesystem`, and its `storage_path` is `s3://b/x`\nhint: leave the scheme out",
        ),
        (lambda: RunConfig(storage_filesystem=object()), ConfigTypeError, "`RunConfig.storage_filesystem` is an object: it"),
    ],
)  # fmt: skip
def test_what_is_no_place_is_one_clear_error(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)


def test_without_credentials_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").write_text("M")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: Checkpoint("s3://bucket/x").to_directory(),
        lambda: Checkpoint("s3://bucket/x").get_metadata(),
        lambda: Checkpoint(tmp_path).to_uri("s3://bucket/x"),
    )
    for call in calls:
        with pytest.raises(ConfigError) as caught:
            call()
        assert "AWS_ACCESS_KEY_ID" in str(caught.value) and caught.value.__cause__ is None


def test_repr_uri_and_filesystem_say_where_it_is(there: Path) -> None:
    local, arrow = Checkpoint("/x"), Checkpoint("runs/a", filesystem=_arrow(there))
    assert repr(local) == "Checkpoint(filesystem=local, path=/x)" and local.uri == "file:///x"
    assert local.filesystem == pyarrow.fs.LocalFileSystem()
    assert repr(Checkpoint("gs://b/x")) == "Checkpoint(filesystem=gcs, path=gs://b/x)"
    assert Checkpoint("s3://b/x").uri == "s3://b/x" == Checkpoint.from_uri("s3://b/x").path
    assert repr(arrow) == "Checkpoint(filesystem=subtree, path=runs/a)" and arrow.uri is None
    assert arrow.filesystem == _arrow(there)
    assert repr(Checkpoint("a", filesystem=_fsspec(there))) == "Checkpoint(filesystem=dir, path=a)"
    given = pyarrow.fs.LocalFileSystem()
    assert Checkpoint("/x", filesystem=given).is_local and Checkpoint("/x", filesystem=given).filesystem is given
    assert Checkpoint("az://c/x").filesystem is None, "pyarrow needs the account beside the URI"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_files_of_a_file_system_object_come_as_a_directory_for_a_while(family: Any, there: Path) -> None:
    checkpoint = Checkpoint("runs/a", filesystem=family(there))
    with checkpoint.as_directory() as directory:
        assert not directory.startswith(str(there))
        assert _files(directory) == {"model": "weights", "deep/b": "B"}
    assert not os.path.exists(directory) and _files(there / "runs" / "a") == {"model": "weights", "deep/b": "B"}
    assert checkpoint.to_dict() == {"model": b"weights", "deep/b": b"B"}
    assert Checkpoint.from_bytes(checkpoint.to_bytes()).to_dict() == checkpoint.to_dict()


@pytest.mark.parametrize("family", FAMILIES)
def test_to_directory_keeps_what_the_target_has_and_leaves_nothing_beside_it(
    family: Any, there: Path, tmp_path: Path
) -> None:
    checkpoint = Checkpoint("/runs/a/", filesystem=family(there))
    new, old = tmp_path / "out" / "new", tmp_path / "out" / "old"
    old.mkdir(parents=True)
    (old / "mine").write_text("stays")
    assert checkpoint.to_directory(new) == str(new) and checkpoint.to_directory(old) == str(old)
    assert _files(new) == {"model": "weights", "deep/b": "B"}
    assert _files(old) == {"mine": "stays", "model": "weights", "deep/b": "B"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["new", "old"]
    assert new.stat().st_mode & 0o777 == old.stat().st_mode & 0o777, "it is a directory of the caller's"


@pytest.mark.parametrize("family", FAMILIES)
def test_metadata_and_a_preprocessor_are_kept_where_the_files_are(family: Any, there: Path) -> None:
    checkpoint = Checkpoint("runs/a", filesystem=family(there))
    assert checkpoint.get_metadata() == {} and checkpoint.get_preprocessor() is None
    checkpoint.set_metadata({"a": 1})
    checkpoint.update_metadata({"b": [2]})
    checkpoint.set_preprocessor({"scale": 2})
    again = Checkpoint("runs/a", filesystem=family(there))
    assert again.get_metadata() == {"a": 1, "b": [2]} and again.get_preprocessor() == {"scale": 2}
    assert json.loads((there / "runs" / "a" / ".metadata.json").read_text()) == {"a": 1, "b": [2]}
    assert not list(there.rglob("*.part")) and not list(there.rglob("*.new"))


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_there_is_an_error_with_the_place(family: Any, there: Path) -> None:
    with pytest.raises(CheckpointError, match="the checkpoint directory `runs/none` does not exist or is empty"):
        Checkpoint("runs/none", filesystem=family(there)).to_directory()


class _Refusing(DirFileSystem):  # type: ignore[misc]
    """Lists its files and gives none of them."""

    def get_file(self, *arguments: Any, **options: Any) -> None:
        raise PermissionError("not for you")

    open = get_file  # type: ignore[assignment]


@pytest.mark.parametrize(
    "adapt", [lambda refusing: refusing, lambda refusing: pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(refusing))]
)
def test_what_a_file_system_raises_is_told_with_the_place(adapt: Callable[[Any], Any], there: Path) -> None:
    refusing = adapt(_Refusing(path=str(there), fs=fsspec.filesystem("file")))
    with pytest.raises(StorageError) as caught:
        Checkpoint("runs/a", filesystem=refusing).to_bytes()
    assert caught.value.message == "`runs/a` could not be read: PermissionError: not for you"
    assert isinstance(caught.value.__cause__, PermissionError)


def test_a_preprocessor_may_stand_in_the_dict_as_in_older_scripts() -> None:
    assert Checkpoint.from_dict({"_preprocessor": "p", "model": 1}).get_preprocessor() == "p"


def test_the_manifest_is_in_no_copy_and_a_file_of_that_name_deeper_inside_is(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    for name in (".manifest.json", "deep/.manifest.json", "model"):
        (source / name).write_text(name)
    target.mkdir()
    (target / ".manifest.json").write_text("of the target's own")
    checkpoint = Checkpoint(source, verify=False)
    expected = {"deep/.manifest.json", "model"}
    assert set(checkpoint.to_dict()) == set(pickle.loads(checkpoint.to_bytes())) == expected
    assert set(_files(checkpoint.to_directory(tmp_path / "new"))) == expected
    checkpoint.to_directory(target)
    assert (target / ".manifest.json").read_text() == "of the target's own"


def test_to_uri_and_from_uri_reach_a_local_path_too(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/copy"
    assert Checkpoint.from_dict({"a": 1}).to_uri(uri) == uri
    assert Checkpoint.from_uri(uri).to_dict() == {"a": 1} and Checkpoint(uri).path == str(tmp_path / "copy")


def test_one_checkpoint_under_another_class_shares_its_directory() -> None:
    class Own(Checkpoint):
        pass

    plain = Checkpoint.from_dict({"a": 1})
    own = Own.from_checkpoint(plain)
    assert type(own) is Own and own.path == plain.path and repr(own).startswith("Own(filesystem=local")
    del plain
    assert own.to_dict() == {"a": 1}, "the directory stays for as long as one of them does"
    assert isinstance(Own.from_dict({}), Own)


def test_checkpoints_compare_by_identity() -> None:
    one, other = Checkpoint("/x"), Checkpoint("/x")
    assert one != other and len({one, other}) == 2


def test_a_pickle_points_at_the_same_place(there: Path) -> None:
    assert pickle.loads(pickle.dumps(Checkpoint("s3://b/x"))).path == "s3://b/x"
    copy = pickle.loads(pickle.dumps(Checkpoint("runs/a", filesystem=_arrow(there))))
    assert copy.to_dict() == {"model": b"weights", "deep/b": b"B"} and copy.filesystem == _arrow(there)


class _Counted:
    """A place that counts its downloads, and in which they can be held up or fail."""

    def __init__(self) -> None:
        self.downloads = 0
        self.location = "counted"
        self.go_on = threading.Event()
        self.fails = False

    def download(self, directory: str) -> None:
        self.downloads += 1
        Path(directory, "model").write_text("half")
        assert self.go_on.wait(30)
        if self.fails:
            raise CheckpointError("`model` is damaged")
        Path(directory, "model").write_text("whole")


@pytest.fixture
def in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place where the workers of a run keep what they download."""
    kept = tmp_path / "run" / ".staging" / "temporary"
    kept.mkdir(parents=True)
    monkeypatch.setattr("carril.train._downloads.place_that_goes_with_the_run", lambda: str(kept))
    return kept


def test_readers_at_the_same_time_share_one_download_and_the_last_removes_it(in_a_worker: Path) -> None:
    source, seen, leave = _Counted(), [], threading.Barrier(4)

    def read() -> None:
        with downloaded(source, "the same") as directory:  # type: ignore[arg-type]
            seen.append((directory, Path(directory, "model").read_text()))
            leave.wait(30)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    source.go_on.set()
    for thread in threads:
        thread.join()
    assert source.downloads == 1 and len(set(seen)) == 1 and seen[0][1] == "whole"
    assert [path.suffix for path in in_a_worker.iterdir()] == [".lock"]


def test_a_download_that_fails_or_was_cut_is_never_seen(in_a_worker: Path) -> None:
    source = _Counted()
    source.go_on.set()
    source.fails = True
    with pytest.raises(CheckpointError, match="`model` is damaged"), downloaded(source, "x"):  # type: ignore[arg-type]
        pytest.fail("nothing was downloaded")
    assert [path.suffix for path in in_a_worker.iterdir()] == [".lock"]
    (lock,) = in_a_worker.iterdir()
    # As one leaves it who was killed while he downloaded.
    part = lock.with_suffix(".part")
    part.mkdir()
    (part / "stray").write_text("of the one before")
    source.fails = False
    with downloaded(source, "x") as directory:  # type: ignore[arg-type]
        assert _files(directory) == {"model": "whole"}
    assert [path.suffix for path in in_a_worker.iterdir()] == [".lock"]


def test_a_lock_is_not_held_by_a_child_that_was_forked_meanwhile(in_a_worker: Path) -> None:
    source = _Counted()
    source.go_on.set()
    begin, end = os.pipe()
    with downloaded(source, "x"):  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            os.read(begin, 1)
            os._exit(0)
    try:
        # It would wait for the child here.
        with downloaded(source, "x") as directory:  # type: ignore[arg-type]
            assert _files(directory) == {"model": "whole"}
    finally:
        os.write(end, b"x")
        assert os.waitpid(child, 0)[1] == 0
        os.close(begin)
        os.close(end)
    assert source.downloads == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_place_lists_its_first_level(family: Any, there: Path) -> None:
    assert place("runs/a", family(there)).names() == ["deep", "model"] == place(str(there / "runs" / "a")).names()
    assert place("none", family(there)).names() == [] == place("/no/such").names()
    assert re.fullmatch(r"runs/a", place("runs/a", family(there)).location)
