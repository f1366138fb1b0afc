"""`Trainer.restore` of runs that are not on a local path: in S3, and in file system objects of pyarrow and fsspec."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import own_filesystems
import pyarrow.fs
import pytest
from checkpoint_runs import saves
from driver_scripts import Script, Scripts, scripts_fixture, wait_until  # noqa: F401
from runs import fit
from s3_server import (  # noqa: F401
    BUCKET,
    Place,
    S3Server,
    place_fixture,
    s3_fixture,
    s3_variables_fixture,
    without_credentials,
)

from carril._internal.command import find_command
from carril.exceptions import ConfigError, NotFoundError
from carril.train import DataParallelTrainer, Result, WorkerGroupError

pytestmark = pytest.mark.usefixtures("s3_variables", "head")

# A driver as a user has it in a file. Without a second argument its function waits at the end, to be killed there.
SCRIPT = """
    import os, sys, time
    from carril import train

    def loop(config):
        latest = train.get_checkpoint()
        begin = latest.to_dict()["step"] + 1 if latest else 0
        print(f"begin={begin}", flush=True)
        for step in range(begin, 3):
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
        while begin == 0:
            time.sleep(0.01)
        return begin

    if __name__ == "__main__":
        run = train.RunConfig(storage_path=sys.argv[1])
        result = train.DataParallelTrainer(loop, train_loop_config={"note": "kept"}, run_config=run).fit()
        print(f"path={result.path}")
"""
RESTORES = """
    import sys
    from carril import train

    trainer = train.DataParallelTrainer.restore(sys.argv[1])
    print(f"config={trainer.train_loop_config}")
    result = trainer.fit()
    print(f"returned={result.return_value}")
    print(f"path={result.path}")
"""


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    """Another machine, as far as a script can tell: a home and a temporary directory with nothing in them."""
    made = Scripts(tmp_path_factory.mktemp("elsewhere"))
    yield made
    made.close()


def start(scripts: Scripts, place: Place) -> tuple[Script, str]:
    """A run whose third checkpoint is there, and its URI."""
    script = scripts.start(SCRIPT, place.uri)
    wait_until(
        lambda: any(key.endswith("/checkpoint_000002/.manifest.json") for key in place.objects()),
        "the third checkpoint",
        lambda: script.output,
    )
    (name,) = {key.partition("/")[0] for key in place.objects()}
    return script, f"{place.uri}/{name}"


def cut(scripts: Scripts, place: Place) -> str:
    """The URI of a run whose driver was killed when its third checkpoint was there."""
    script, uri = start(scripts, place)
    os.kill(script.pid, signal.SIGKILL)
    assert script.finish() == -signal.SIGKILL
    script.is_alone()
    return uri


def test_a_run_in_s3_goes_on_while_the_head_of_the_killed_driver_is_still_ending(
    scripts: Scripts, place: Place
) -> None:
    killed, uri = start(scripts, place)
    before, head = scripts.heads_directories(), killed.head().pid
    os.kill(head, signal.SIGSTOP)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.finish() == -signal.SIGKILL
    again = scripts.start(RESTORES, uri)
    scripts.arrives("spool/*/run/run.json", besides=before)
    os.kill(head, signal.SIGCONT)
    assert again.finish() == 0, again.output
    assert "returned=3" in again.output
    killed.is_alone()


def test_a_run_in_s3_comes_back_on_an_empty_disk(scripts: Scripts, elsewhere: Scripts, place: Place) -> None:
    uri = cut(scripts, place)
    output = elsewhere.run(RESTORES, f"{uri}/")
    assert "config={'note': 'kept'}\n" in output
    assert f"returned=3\npath={uri}" in output


def test_the_command_of_a_run_in_s3_is_run_again(scripts: Scripts, place: Place) -> None:
    uri = cut(scripts, place)
    again = scripts.start_command(find_command(), "resume", uri)
    assert again.finish() == 0, again.output
    assert "begin=3" in again.output and f"path={uri}\n" in again.output
    assert {key.partition("/")[0] for key in place.objects()} == {uri.rpartition("/")[2]}


def test_what_is_in_the_bucket_decides(place: Place) -> None:
    with pytest.raises(WorkerGroupError):
        fit(saves(), place.uri, config={"steps": 3, "fail_at": 1}, name="cut")
    uri = f"{place.uri}/cut"
    assert DataParallelTrainer.can_restore(uri)
    for path, text in (
        (f"{place.uri}/none", "does not exist"),
        (place.uri, "is not the directory of a run"),
        (f"{uri}/checkpoint_000001", "is a checkpoint, not a run"),
    ):
        assert DataParallelTrainer.can_restore(path) is False
        with pytest.raises(NotFoundError, match=text):
            DataParallelTrainer.restore(path)
    (place.directory / "cut" / "function.pkl").unlink()
    assert DataParallelTrainer.can_restore(uri) is False
    assert DataParallelTrainer.restore(uri, saves(), {"steps": 3}).fit().return_value == 2
    assert DataParallelTrainer.can_restore(uri), "the function that was given is kept now"


def test_storage_that_cannot_be_asked_is_an_error_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(without_credentials()):
        monkeypatch.delenv(name)
    for call in (DataParallelTrainer.can_restore, DataParallelTrainer.restore):
        with pytest.raises(ConfigError, match="no credentials for"):
            call(f"s3://{BUCKET}/some/run")


def _large() -> Callable[[], int]:
    ballast = os.urandom(3 << 20)

    def function() -> int:
        return len(ballast)

    return function


def test_a_large_function_is_sent_once(place: Place) -> None:
    function = _large()
    fit(function, place.uri, workers=1, name="large")
    kept = place.directory / "large" / "function.pkl"
    first = kept.stat()
    fit(function, place.uri, workers=1, name="large", resume=True)
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    result = Result.from_path(f"{place.uri}/large")
    assert result.error is None and result.restarts == []
    fit(_large(), place.uri, workers=1, name="large", resume=True)
    assert kept.stat().st_mtime_ns > first.st_mtime_ns
    assert DataParallelTrainer.restore(f"{place.uri}/large").fit().return_value == 3 << 20


@pytest.mark.parametrize("family", ["pyarrow", "fsspec"])
def test_a_run_in_a_file_system_object_comes_back_with_it(tmp_path: Path, family: str) -> None:
    filesystem: Any = {
        "pyarrow": lambda: pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem()),
        "fsspec": lambda: own_filesystems.Drawer(str(tmp_path), secret="the-key-of-the-drawer"),
    }[family]()
    with pytest.raises(WorkerGroupError):
        fit(
            saves(),
            "runs/mine",  # type: ignore[arg-type]
            config={"steps": 3, "fail_at": 1},
            name="cut",
            storage_filesystem=filesystem,
        )
    kept = (tmp_path / "runs" / "mine" / "cut" / "trainer.pkl").read_bytes()
    assert b"the-key-of-the-drawer" not in kept
    assert DataParallelTrainer.can_restore("runs/mine/cut", storage_filesystem=filesystem)
    assert not DataParallelTrainer.can_restore("runs/mine/none", storage_filesystem=filesystem)
    restored = DataParallelTrainer.restore(
        "runs/mine/cut/", train_loop_config={"steps": 3}, storage_filesystem=filesystem
    )
    assert restored.run_config.storage_path == "runs/mine"
    assert restored.fit().return_value == 2
