"""Bad input around checkpoints: one clear error each, at the line that gave it, and the run goes on where it can.

The texts are in `snapshots/checkpoint_input.txt`, one after the other, to be read as a user would. Stores that refuse us
are in `test_s3_faults`; the plain mistakes in configs in `test_bad_input`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from runs import fit
from s3_server import without_credentials
from snapshots import check

from carril.exceptions import CarrilError
from carril.train import Checkpoint, CheckpointConfig, Result

pytestmark = pytest.mark.usefixtures("head")


class Mistake(NamedTuple):
    """What a worker does wrong: `do(train, place, run)`, with an empty directory and that of the run."""

    title: str
    do: Callable[[Any, Path, Path], Any]


def mistakes() -> list[Mistake]:
    """Made in a function, so that they travel to the workers by value."""

    def reports(train: Any, path: Path, **options: Any) -> None:
        train.report({"bad": True}, checkpoint=train.Checkpoint(path), **options)

    def good(train: Any, place: Path, name: str = "good") -> Path:
        (place / name).mkdir()
        (place / name / "model").write_text("weights")
        return place / name

    def empty(train: Any, place: Path, run: Path) -> None:
        (place / "empty" / "deep").mkdir(parents=True)
        reports(train, place / "empty")

    def a_file(train: Any, place: Path, run: Path) -> None:
        (place / "file").write_text("x")
        reports(train, place / "file")

    def a_pipe(train: Any, place: Path, run: Path) -> None:
        import os

        os.mkfifo(good(train, place) / "pipe")
        reports(train, place / "good")

    def a_dangling_link(train: Any, place: Path, run: Path) -> None:
        (good(train, place) / "link").symlink_to(place / "nowhere")
        reports(train, place / "good")

    def links_in_a_circle(train: Any, place: Path, run: Path) -> None:
        (good(train, place) / "back").symlink_to(place / "good")
        reports(train, place / "good")

    def own_manifest(train: Any, place: Path, run: Path) -> None:
        """Only what is never kept: as good as empty."""
        (place / "only").mkdir()
        (place / "only" / ".manifest.json").write_text("{}")
        reports(train, place / "only")

    def a_name_twice(train: Any, place: Path, run: Path) -> None:
        (run / "taken").mkdir()
        reports(train, good(train, place), checkpoint_dir_name=7)

    def outside(train: Any, place: Path, run: Path) -> None:
        reports(train, good(train, place), checkpoint_upload_mode="NO_UPLOAD")

    def not_there_in_place(train: Any, place: Path, run: Path) -> None:
        reports(train, run / "nothing", checkpoint_upload_mode="NO_UPLOAD")

    def upload_fn(result: Callable[[Any, Path], Any]) -> Callable[[Any, Path, Path], None]:
        def do(train: Any, place: Path, run: Path) -> None:
            function = result if not callable(result) else lambda checkpoint, name: result(train, place)
            reports(train, good(train, place), checkpoint_upload_fn=function)

        return do

    def raises(train: Any, place: Path) -> Any:
        raise OSError("the store is on fire")

    return [
        Mistake("a directory that does not exist", lambda train, place, run: reports(train, place / "missing")),
        Mistake("a directory that is empty but for directories", empty),
        Mistake("a directory that is a file", a_file),
        Mistake("a directory with nothing but a manifest", own_manifest),
        Mistake("the run's own directory", lambda train, place, run: reports(train, run)),
        Mistake("the storage, which holds the run", lambda train, place, run: reports(train, run.parent)),
        Mistake(
            "the storage, to be given away",
            lambda train, place, run: reports(train, run.parent, delete_local_checkpoint_after_upload=True),
        ),
        Mistake("a directory with a pipe in it", a_pipe),
        Mistake("a directory with a link to nowhere", a_dangling_link),
        Mistake("a directory with a link to itself", links_in_a_circle),
        Mistake("a checkpoint that is a path", lambda train, place, run: train.report({}, checkpoint=str(place))),
        Mistake("a name that is a number", a_name_twice),
        Mistake(
            "a name with a slash",
            lambda train, place, run: reports(train, good(train, place), checkpoint_dir_name="a/b"),
        ),
        Mistake(
            "a mode that is none",
            lambda train, place, run: reports(train, good(train, place), checkpoint_upload_mode="LATER"),
        ),
        Mistake(
            "a mode that is a number",
            lambda train, place, run: reports(train, good(train, place), checkpoint_upload_mode=3),
        ),
        Mistake(
            "to be deleted: perhaps",
            lambda train, place, run: reports(
                train, good(train, place), delete_local_checkpoint_after_upload="perhaps"
            ),
        ),
        Mistake("NO_UPLOAD of a place outside the run's", outside),
        Mistake("NO_UPLOAD of what is not there", not_there_in_place),
        Mistake("an upload function that is none", upload_fn("upload")),  # type: ignore[arg-type]
        Mistake("an upload function that returns nothing", upload_fn(lambda train, place: None)),
        Mistake("an upload function that returns a path", upload_fn(lambda train, place: str(place))),
        Mistake(
            "an upload function that puts it elsewhere",
            upload_fn(lambda train, place: train.Checkpoint(place / "good")),
        ),
        Mistake("an upload function that fails", upload_fn(raises)),
        Mistake("a URI of a kind that there is no storage for", lambda train, *_: train.Checkpoint("hdfs://a/b")),
        Mistake("a URI that names no bucket", lambda train, *_: train.Checkpoint("s3://")),
        Mistake("a URI without credentials", lambda train, *_: train.Checkpoint("s3://bucket/x").to_directory()),
        Mistake("a URI without credentials at Google", lambda train, *_: train.Checkpoint("gs://b/x").to_directory()),
        Mistake("a URI without credentials at Azure", lambda train, *_: train.Checkpoint("az://b/x").to_directory()),
        Mistake(
            "a consistency mode that is none",
            lambda train, *_: train.get_all_reported_checkpoints(consistency_mode="SOON"),
        ),
    ]


def told(mistake: Mistake, storage: Path, name: str) -> str:
    """What the worker saw; afterwards its run goes on and keeps a checkpoint."""
    do = mistake.do

    def function(config: dict[str, Any]) -> str:
        import os
        from pathlib import Path

        from carril import train

        for variable in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
            del os.environ[variable]
        os.environ["HOME"] = config["place"]
        try:
            do(train, Path(config["place"]), Path(config["run"]))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        else:
            text = "nothing was raised"
        train.report({"good": True}, checkpoint=train.Checkpoint.from_dict({"good": True}))
        return text

    place = storage / f"place-{name}"
    place.mkdir()
    config = {"place": str(place), "run": str(storage / name)}
    result = fit(function, storage, workers=1, config=config, name=name)
    assert [row.get("bad") for row in result.rank_metrics(0)] == [None], "a report that was refused is not counted"
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"good": True}
    assert not (storage / name / ".staging").exists()
    text = result.return_value.replace(str(place), "PLACE").replace(config["run"], "RUN")
    return str(text.replace(str(storage), "STORAGE"))


@pytest.mark.parametrize("index", range(len(mistakes())), ids=[mistake.title for mistake in mistakes()])
def test_a_mistake_is_one_clear_error_and_the_run_goes_on(storage: Path, index: int) -> None:
    mistake = mistakes()[index]
    kind, _, text = told(mistake, storage, "run").partition(": ")
    first, *hints = text.splitlines() or [""]
    if mistake.title == "an upload function that fails":
        assert (kind, text) == ("OSError", "the store is on fire"), "the user's own error is the user's"
        return
    assert kind in ("CheckpointError", "ConfigError", "ConfigTypeError", "StorageError"), (kind, text)
    assert not first.endswith(".") and not first[0].isupper() and "`" in first, first
    assert all(line.startswith("hint: ") for line in hints), hints


def test_the_texts_are_these(storage: Path) -> None:
    texts = [
        f"# {mistake.title}\n{told(mistake, storage, f'run-{number}')}" for number, mistake in enumerate(mistakes())
    ]
    check("checkpoint_input", "\n\n".join(texts))


def test_a_directory_that_vanishes_while_it_is_copied_is_an_error_and_the_run_goes_on(storage: Path) -> None:
    def function(config: dict[str, Any]) -> tuple[str, int]:
        import os
        import shutil
        import threading
        import time

        from carril import train

        mine, staging = os.path.join(config["place"], "mine"), os.path.join(config["run"], ".staging")
        os.mkdir(mine)
        for number in range(config["files"]):
            with open(os.path.join(mine, f"file-{number}"), "w") as file:
                file.write("x" * 1000)

        def copied() -> int:
            return sum(len(names) for _, _, names in os.walk(staging))

        seen: list[int] = []

        def vanish() -> None:
            while not (found := copied()):
                time.sleep(0.0001)
            os.rename(mine, f"{mine}-gone")
            shutil.rmtree(f"{mine}-gone")
            seen.append(found)

        thread = threading.Thread(target=vanish)
        thread.start()
        try:
            train.report({"bad": True}, checkpoint=train.Checkpoint(mine))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        else:
            text = "nothing was raised"
        thread.join()
        train.report({"good": True}, checkpoint=train.Checkpoint.from_dict({"good": True}))
        return text, seen[0]

    files = 20_000
    config = {"place": str(storage), "run": str(storage / "run"), "files": files}
    result = fit(function, storage, workers=1, config=config, name="run")
    text, copied = result.return_value
    assert 0 < copied < files, "it vanished while it was copied"
    assert text.startswith(f"CheckpointError: the checkpoint directory `{storage}/mine` "), text
    assert "vanished" in text or "does not exist" in text or "changed" in text, text
    assert [row.get("bad") for row in result.rank_metrics(0)] == [None]
    assert result.checkpoint is not None and result.checkpoint.to_dict() == {"good": True}
    assert not (storage / "run" / ".staging").exists()


class _NotAFilesystem:
    """Has a method or two, and is none."""

    def open(self) -> None: ...


def start(storage: Any, **run: Any) -> Any:
    return fit(lambda: None, storage, workers=1, **run)


ASKED: dict[str, Callable[[Path], Any]] = {
    "num_to_keep of nothing": lambda storage: CheckpointConfig(num_to_keep=0),
    "num_to_keep below nothing": lambda storage: CheckpointConfig(num_to_keep=-2),
    "num_to_keep that is a bool": lambda storage: CheckpointConfig(num_to_keep=True),
    "num_to_keep in words": lambda storage: CheckpointConfig(num_to_keep="two"),  # type: ignore[arg-type]
    "half a num_to_keep": lambda storage: CheckpointConfig(num_to_keep=1.5),  # type: ignore[arg-type]
    "a score that is a number": lambda storage: CheckpointConfig(checkpoint_score_attribute=3),  # type: ignore[arg-type]
    "an order that is none": lambda storage: CheckpointConfig(checkpoint_score_order="best"),
    "a storage of a kind that there is none of": lambda storage: start("ftp://host/path"),
    "a storage that names no bucket": lambda storage: start("s3://"),
    "a URI that went through a Path": lambda storage: start(Path("s3://bucket/x")),
    "a file system that is none": lambda storage: start("a/b", storage_filesystem=_NotAFilesystem()),
    "a result without credentials": lambda storage: Result.from_path("s3://bucket/run"),
    "a checkpoint in a file system that is none": lambda storage: Checkpoint("a", filesystem=_NotAFilesystem()),
    "a run without credentials": lambda storage: start("s3://bucket/runs"),
}


def asked(title: str, storage: Path) -> CarrilError:
    with pytest.raises(CarrilError) as caught:
        ASKED[title](storage)
    return caught.value


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without credentials, in the environment and in the home directory."""
    import os

    for name in set(os.environ) - set(without_credentials()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("poor")
def test_what_cannot_be_is_refused_where_it_is_asked_for(storage: Path) -> None:
    texts = []
    for title in ASKED:
        error = asked(title, storage)
        first, *hints = str(error).splitlines()
        assert not first.endswith(".") and not first[0].isupper() and "`" in first, (title, first)
        assert all(line.startswith("hint: ") for line in hints), (title, hints)
        texts.append(f"# {title}\n{type(error).__name__}: {error}")
    check("checkpoint_config", "\n\n".join(texts))
    assert list(storage.iterdir()) == []
