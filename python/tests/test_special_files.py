"""A named pipe, a directory or a device under the name of a file of ours: named as damaged, and waited for by nobody."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import saves
from runs import fit

from carril import tune
from carril._internal.command import find_command
from carril.exceptions import StorageError
from carril.train import Result, RunConfig, WorkerGroupError
from carril.tune import Tuner

pytestmark = pytest.mark.usefixtures("head")

KINDS: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a directory": os.mkdir,
    "a device": lambda path: os.symlink("/dev/zero", path),
}


def replaced(path: Path, kind: str) -> None:
    path.unlink()
    KINDS[kind](path)


def command(*arguments: str) -> str:
    """What a command prints, within a time in which it does not wait for anything."""
    done = subprocess.run(
        [find_command(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, text=True
    )
    return done.stdout


@pytest.fixture
def run(storage: Path) -> Path:
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), storage, workers=1, config={"steps": 4, "fail_at": 1}, name="run")
    return storage / "run"


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_is_no_file_is_damaged(run: Path, kind: str) -> None:
    replaced(run / "run.json", kind)
    with pytest.raises(StorageError, match=r"run\.json` is damaged"):
        fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=False)
    with pytest.raises(StorageError, match=rf"run\.json` is damaged: it is {kind}, not a file"):
        Result.from_path(run)
    assert f"run.json` is damaged: it is {kind}, not a file" in command("status", str(run))
    if kind != "a directory":  # which is not written over
        assert fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=True).return_value == 2


@pytest.mark.parametrize("name", ["result.json", "journal/000000.log"])
def test_a_file_that_a_resume_appends_to_or_reads_is_named(run: Path, name: str) -> None:
    replaced(run / name, "a named pipe")
    with pytest.raises(StorageError, match=rf"{name}` is damaged: it is a named pipe, not a file"):
        fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=True)
    command("logs", str(run))
    command("explain", str(run))
    # What could not be opened is not live.
    (run / name).unlink()
    assert fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=True).return_value == 2


def test_what_is_written_whole_takes_the_place_of_what_is_no_file(run: Path) -> None:
    for name in ("params.json", "progress.csv", "error.json", "error.txt", "trainer.pkl", "function.pkl"):
        replaced(run / name, "a named pipe")
    assert fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=True).return_value == 2
    assert all((run / name).is_file() for name in ("params.json", "trainer.pkl", "function.pkl"))
    assert len((run / "progress.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("file", [".manifest.json", "step"])
def test_a_checkpoint_with_a_pipe_in_it_is_set_aside(run: Path, file: str) -> None:
    replaced(run / "checkpoint_000001" / file, "a named pipe")
    assert "checkpoint_000001" in command("checkpoints", str(run))
    assert fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=True).return_value == 1
    assert (run / "checkpoint_000001.damaged").is_dir()


def test_an_output_that_is_no_file_fails_the_start_of_its_rank_and_nothing_hangs(run: Path) -> None:
    os.mkfifo(run / "ranks" / "rank_0.attempt_1.log")
    result = fit(saves(), run.parent, workers=1, config={"steps": 4}, name="run", resume=True)
    assert "it is a named pipe, not a file" in str(result.restarts)


def test_files_of_a_search(storage: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": 1.0}

    def search() -> Any:
        run_config = RunConfig(name="search", storage_path=storage, resume=True)
        return Tuner(train, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config).fit()

    assert len(search()) == 2
    path = storage / "search" / "trials.jsonl"
    replaced(path, "a named pipe")
    with pytest.raises(StorageError, match=r"trials\.jsonl` is damaged: it is a named pipe, not a file"):
        search()
    command("tune", "show", str(storage / "search"))
    path.unlink()
    assert len(search()) == 2
    # Its content is in `trials.jsonl` as well.
    replaced(storage / "search" / "experiment.json", "a named pipe")
    command("tune", "show", str(storage / "search"))
    assert len(search()) == 2 and (storage / "search" / "experiment.json").is_file()
