"""`resume_from_checkpoint`: what a run begins with, for as long as it has no checkpoint of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from carril.exceptions import CheckpointError, ConfigTypeError
from carril.train import (
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)

pytestmark = pytest.mark.usefixtures("head")


def seen() -> Callable[[dict[str, Any]], Any]:
    """What `get_checkpoint()` has given in each attempt, written down in a file by rank 0.

    Its config: `seen`, the file; `fail`, attempts that fail at their beginning; `save`, one that saves and then fails.
    """

    def function(config: dict[str, Any]) -> Any:
        import os

        from carril import train

        latest = train.get_checkpoint()
        value = None if latest is None else latest.to_dict()["value"]
        rank, attempt = train.get_context().get_world_rank(), int(os.environ["CARRIL_WORKER"].split("/")[1])
        if rank == 0:
            with open(config["seen"], "a") as file:
                file.write(f"{value}\n")
        train.collective.barrier()
        if attempt == config.get("save"):
            made = train.Checkpoint.from_dict({"value": f"own of attempt {attempt}"}) if rank == 0 else None
            train.report({"attempt": attempt}, checkpoint=made)
            if rank == 0:
                # This waits until it is stored. The other rank fails only then, too: it has reported none itself.
                after = train.get_checkpoint()
                assert after is not None and after.to_dict()["value"] == f"own of attempt {attempt}"
            train.collective.barrier()
        if attempt in config.get("fail", []):
            raise RuntimeError(f"of attempt {attempt}")
        return value

    return function


class Runs:
    """Trainers of one test, and what their functions have seen."""

    def __init__(self, directory: Path) -> None:
        self._seen = directory / "seen"
        self._storage = directory / "storage"

    def trainer(self, checkpoint: Any, workers: int = 2, name: str = "run", **config: Any) -> DataParallelTrainer:
        return DataParallelTrainer(
            seen(),
            train_loop_config={"seen": str(self._seen), **config},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(
                name=name,
                storage_path=self._storage,
                failure_config=FailureConfig(max_failures=3),
                verbose=0,
                resume=True,
            ),
            resume_from_checkpoint=checkpoint,
        )

    @property
    def seen(self) -> list[str]:
        return self._seen.read_text().splitlines()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def lasting(tmp_path: Path, value: str = "given") -> Checkpoint:
    return Checkpoint(Checkpoint.from_dict({"value": value}).to_directory(tmp_path / value))


def test_a_run_begins_with_it_on_every_rank(runs: Runs, tmp_path: Path) -> None:
    result = runs.trainer(lasting(tmp_path)).fit()
    assert result.return_value == "given" and runs.seen == ["given"]
    assert result.checkpoint is None, "it is none of the run's own"


def test_without_one_a_run_begins_with_none(runs: Runs) -> None:
    assert runs.trainer(None).fit().return_value is None


def test_it_is_given_after_each_restart_until_the_run_has_its_own(runs: Runs, tmp_path: Path) -> None:
    result = runs.trainer(lasting(tmp_path), fail=[0, 1, 2], save=1).fit()
    assert len(result.restarts) == 3
    assert runs.seen == ["given", "given", "own of attempt 1", "own of attempt 1"]
    assert result.return_value == "own of attempt 1"


def test_a_run_that_goes_on_has_its_own_and_does_not_miss_it(runs: Runs, tmp_path: Path) -> None:
    import shutil

    checkpoint = lasting(tmp_path)
    # Each attempt saves or fails before it has: four of them are all that three failures pay for.
    with pytest.raises(WorkerGroupError):
        runs.trainer(checkpoint, fail=[0, 1, 2, 3], save=3).fit()
    shutil.rmtree(checkpoint.path)
    assert runs.trainer(checkpoint).fit().return_value == "own of attempt 3"
    assert runs.seen == ["given"] * 4 + ["own of attempt 3"]
    with pytest.raises(CheckpointError) as caught:
        runs.trainer(checkpoint, name="other").fit()
    assert str(caught.value) == (f"the checkpoint that the run is to begin with, `{checkpoint.path}`, does not exist")
    assert not (tmp_path / "storage" / "other").exists()


def test_a_temporary_one_stays_as_long_as_its_trainer(runs: Runs) -> None:
    trainer = runs.trainer(Checkpoint.from_dict({"value": "of a dict"}), fail=[0])
    assert trainer.fit().return_value == "of a dict" and runs.seen == ["of a dict"] * 2


def test_one_of_a_file_system_object_is_read_through_it(runs: Runs, tmp_path: Path) -> None:
    lasting(tmp_path)
    filesystem = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    assert runs.trainer(Checkpoint("given", filesystem=filesystem)).fit().return_value == "given"


def test_the_checkpoint_of_another_run_will_do(runs: Runs) -> None:
    first = runs.trainer(None, save=0).fit()
    assert first.checkpoint is not None
    assert runs.trainer(first.checkpoint, name="second").fit().return_value == "own of attempt 0"


def test_it_is_there_without_workers_too(tmp_path: Path) -> None:
    def function() -> Any:
        from carril import train

        latest = train.get_checkpoint()
        assert latest is not None
        first = latest.to_dict()["value"]
        train.report({}, checkpoint=train.Checkpoint.from_dict({"value": "own"}))
        latest = train.get_checkpoint()
        assert latest is not None
        return first, latest.to_dict()["value"]

    trainer = DataParallelTrainer(
        function, scaling_config=ScalingConfig(num_workers=0), resume_from_checkpoint=lasting(tmp_path)
    )
    assert trainer.fit().return_value == ("given", "own")


def test_a_loaded_checkpoint_goes_before_it_and_every_run_of_a_trainer_begins_so(runs: Runs, tmp_path: Path) -> None:
    trainer = runs.trainer(lasting(tmp_path))
    assert trainer.run() == ["given"] * 2
    trainer.load_checkpoint({"value": "loaded"})
    assert trainer.run() == ["loaded"] * 2
    trainer.load_checkpoint(None)
    assert trainer.run() == ["given"] * 2
    trainer.shutdown()


@pytest.mark.parametrize(
    ("given", "kind"), [("/some/path", "a str"), (Path("/x"), "a PosixPath"), ({"a": 1}, "a dict"), (3, "an int")]
)
def test_what_is_no_checkpoint_is_refused_with_the_way_out(given: Any, kind: str) -> None:
    with pytest.raises(ConfigTypeError) as caught:
        DataParallelTrainer(lambda: None, resume_from_checkpoint=given)
    assert str(caught.value) == (
        f"`resume_from_checkpoint` is {kind}: it must be a `Checkpoint`\n"
        "hint: give a path as `Checkpoint(path)`, and a run's directory to `restore()`"
    )
