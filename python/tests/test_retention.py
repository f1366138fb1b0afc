"""Which checkpoints stay, and that a disk never fills with those that do not.

The rule is written down a second time here, as plainly as it can be: after each checkpoint the worst go until
`num_to_keep` are left, but never the latest; a score that is missing or NaN is worse than every other, whichever order.
"""

import itertools
import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import committed_steps, saves
from runs import fit

from carril.train import CheckpointConfig, ControllerError, Result, TrainingFailedError, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")

LONG = bool(os.environ.get("CARRIL_LONG"))
NAN, MISSING = math.nan, None
SCORES: list[list[Any]] = [
    [3.0, 1.0, 2.0, 5.0, 4.0, 0.0],
    [0.5, 0.5, 0.5, 0.5],
    [NAN, 1.0, NAN, 2.0, NAN],
    [MISSING, 1.0, 2.0, MISSING, 0.0, MISSING],
    [NAN, MISSING, NAN, MISSING, NAN],
    [math.inf, 1, -math.inf, NAN, 2],
    ["a text", 1.0, "another", 0.5],
]


def number(score: Any) -> float | None:
    """The score as a number that can be compared, or None."""
    if isinstance(score, (int, float)) and not (isinstance(score, float) and math.isnan(score)):
        return float(score)
    return None


def expected(scores: list[Any], keep: int | None, order: str | None) -> list[list[int]]:
    """After each checkpoint, those that are there, the best last."""

    def rank(step: int) -> tuple[bool, float, int]:
        value = number(scores[step]) if order else 0.0
        return (value is not None, (value or 0.0) * (-1 if order == "min" else 1), step)

    kept: list[int] = []
    states = []
    for step in range(len(scores)):
        kept = sorted([*kept, step], key=rank)
        surplus = kept[: max(0, len(kept) - keep)] if keep is not None else []
        kept = [one for one in kept if one not in surplus or one == step]
        states.append(kept)
    return states


def scored() -> Any:
    def function(config: dict[str, Any]) -> list[Any]:
        import os

        from carril import train

        seen = []
        for step, score in enumerate(config["scores"]):
            metrics = {"step": step} if score is None else {"step": step, "deep": {"score": score}}
            train.report(metrics, checkpoint=train.Checkpoint.from_dict({"step": step}))
            reported = [one.metrics["step"] for one in train.get_all_reported_checkpoints()]
            names = [name for name in os.listdir(config["run"]) if name.startswith("checkpoint_")]
            seen.append((reported, sorted(int(name[-6:]) for name in names)))
        return seen

    return function


@pytest.mark.parametrize("order", ["max", "min", None])
@pytest.mark.parametrize("keep", [1, 2, 3, None])
def test_the_best_few_and_the_latest_are_kept_after_every_single_checkpoint(
    storage: Path, keep: int | None, order: str | None
) -> None:
    for index, scores in enumerate(SCORES):
        config = CheckpointConfig(num_to_keep=keep)
        if order is not None:
            config = CheckpointConfig(keep, checkpoint_score_attribute="deep/score", checkpoint_score_order=order)
        name = f"run-{index}"
        given = {"scores": scores, "run": str(storage / name)}
        result = fit(scored(), storage, workers=1, config=given, name=name, checkpoint_config=config)
        wanted = expected(scores, keep, order)
        assert [reported for reported, _ in result.return_value] == wanted, scores
        assert [there for _, there in result.return_value] == [sorted(state) for state in wanted], scores
        assert [metrics["step"] for _, metrics in result.best_checkpoints] == wanted[-1], scores
        assert all(checkpoint.to_dict()["step"] in wanted[-1] for checkpoint, _ in result.best_checkpoints)
        assert result.checkpoint is not None and result.checkpoint.to_dict() == {"step": len(scores) - 1}
        again = Result.from_path(storage / name)
        assert [metrics["step"] for _, metrics in again.best_checkpoints] == wanted[-1], scores


def test_a_missing_or_nan_score_is_no_best_checkpoint_in_either_order(storage: Path) -> None:
    result = fit(
        scored(), storage, workers=1, config={"scores": [NAN, 2.0, MISSING, 1.0], "run": str(storage / "r")}, name="r"
    )
    for mode, step in (("max", 1), ("min", 3)):
        best = result.get_best_checkpoint("deep/score", mode)
        assert best is not None and best.to_dict() == {"step": step}


def test_the_checkpoints_of_an_earlier_attempt_count_and_the_latest_of_it_goes_when_it_is_not_the_latest_any_more(
    storage: Path,
) -> None:
    config = CheckpointConfig(num_to_keep=2)
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), storage, config={"steps": 9, "fail_at": 3}, name="again", checkpoint_config=config)
    assert committed_steps(storage / "again") == [2, 3]
    fit(saves(), storage, config={"steps": 5}, name="again", checkpoint_config=config)
    assert committed_steps(storage / "again") == [3, 4]


def test_nothing_is_deleted_for_a_checkpoint_that_is_not_kept(storage: Path) -> None:
    """Something is in the way of the third: that ends the run, and the second, which it would displace, is there."""

    def function(config: dict[str, Any]) -> None:
        import os

        from carril import train

        os.mkdir(os.path.join(config["run"], "taken"))
        for step, name in enumerate(["first", "second", "taken"]):
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({}), checkpoint_dir_name=name)
        train.collective.barrier()

    run = storage / "run"
    config = CheckpointConfig(num_to_keep=1)
    with pytest.raises(ControllerError, match="a checkpoint named `taken` exists already"):
        fit(function, storage, workers=1, config={"run": str(run)}, name="run", checkpoint_config=config)
    assert whole(run) == ["second"] and list((run / "taken").iterdir()) == []


def whole(run: Path) -> list[str]:
    """The names of the checkpoints that have a manifest."""
    return sorted(path.parent.name for path in run.glob("*/.manifest.json"))


class Disk:
    """A file system of its own, in a file; the bytes that it was made with, and those that were free then."""

    def __init__(self, mount: Path, size: int) -> None:
        self.mount, self.size = mount, size
        self.empty = self.free

    @property
    def free(self) -> int:
        found = os.statvfs(self.mount)
        return found.f_bavail * found.f_frsize


def _call(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"a small disk needs root, loop devices and mkfs.ext4: `{' '.join(command)}`: {done.stdout}")


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """A small disk; its size comes with the test."""
    image, mount = tmp_path / "image", tmp_path / "disk"
    size = int(request.param)
    with open(image, "wb") as file:
        file.truncate(size)
    _call("mkfs.ext4", "-q", "-m", "0", str(image))
    mount.mkdir()
    _call("mount", "-o", "loop", str(image), str(mount))
    try:
        yield Disk(mount, size)
    finally:
        _call("umount", str(mount))


def fills() -> Any:
    """Saves so many checkpoints of so many bytes, with what is free noted at each report."""

    def function(config: dict[str, Any]) -> list[int]:
        import os
        import tempfile

        from carril import train

        free = []
        with open("/dev/urandom", "rb") as source:
            data = source.read(config["bytes"])
        for step in range(config["count"]):
            directory = tempfile.mkdtemp()
            with open(os.path.join(directory, "model"), "wb") as file:
                file.write(step.to_bytes(8, "big") + data[8:])
            train.report(
                {"step": step, "score": (step * 7) % 11},
                checkpoint=train.Checkpoint(directory),
                checkpoint_upload_mode=config["mode"],
                delete_local_checkpoint_after_upload=True,
            )
            found = os.statvfs(config["disk"])
            free.append(found.f_bavail * found.f_frsize)
        return free

    return function


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
@pytest.mark.parametrize("keep", [1, 4])
@pytest.mark.parametrize("disk", [1 << 30 if LONG else 64 << 20], indirect=True)
def test_a_small_disk_survives_many_checkpoints_of_a_tenth_of_its_size(
    disk: Disk, keep: int, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 1000 if LONG else 200
    size = 100_000_000 if LONG else disk.size // 10
    config = {"bytes": size, "count": count, "mode": mode, "disk": str(disk.mount)}
    result = fit(
        fills(),
        disk.mount,
        workers=1,
        config=config,
        name="run",
        checkpoint_config=CheckpointConfig(keep, checkpoint_score_attribute="score"),
    )
    assert result.metrics is not None and result.metrics["step"] == count - 1
    assert "warning" not in capsys.readouterr().out, "no checkpoint was given up"
    assert len(result.return_value) == count
    kept = [int(metrics["step"]) for _, metrics in result.best_checkpoints]
    assert kept == expected([(step * 7) % 11 for step in range(count)], keep, "max")[-1]
    for checkpoint, metrics in result.best_checkpoints:
        model = Path(checkpoint.path, "model")
        assert model.stat().st_size == size
        with open(model, "rb") as file:
            assert int.from_bytes(file.read(8), "big") == metrics["step"]
    assert disk.free > disk.empty - (len(kept) + 0.5) * size, "what is not kept takes no space"


@pytest.mark.parametrize("disk", [32 << 20], indirect=True)
def test_a_disk_that_cannot_hold_two_checkpoints_is_told_with_the_first(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    size = disk.free * 6 // 10
    config = {"bytes": size, "count": 1, "mode": "SYNC", "disk": str(disk.mount)}
    fit(fills(), disk.mount, workers=1, config=config, name="run")
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 1 and str(disk.mount) in told[0], told
    assert whole(disk.mount / "run") == ["checkpoint_000000"]


@pytest.mark.parametrize("disk", [32 << 20], indirect=True)
def test_a_disk_that_holds_many_is_not_worth_a_word(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"bytes": disk.free // 10, "count": 3, "mode": "SYNC", "disk": str(disk.mount)}
    fit(fills(), disk.mount, workers=1, config=config, name="run", checkpoint_config=CheckpointConfig(num_to_keep=2))
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize("disk", [32 << 20], indirect=True)
def test_a_full_disk_costs_the_checkpoints_that_do_not_fit_and_nothing_else(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    """All are to be kept, and there is room for a few: it is reported, and what fitted is whole."""
    config = {"bytes": disk.free // 4, "count": 8, "mode": "SYNC", "disk": str(disk.mount)}

    def function(config: dict[str, Any]) -> list[str]:
        import os
        import tempfile

        from carril import train
        from carril.exceptions import CarrilError

        told = []
        for step in range(config["count"]):
            with tempfile.TemporaryDirectory() as directory:
                with open(os.path.join(directory, "model"), "wb") as file:
                    file.write(os.urandom(config["bytes"]))
                try:
                    train.report({"step": step}, checkpoint=train.Checkpoint(directory))
                except CarrilError as error:
                    told.append(str(error))
        return told

    try:
        told = fit(function, disk.mount, workers=1, config=config, name="run").return_value
    except TrainingFailedError as error:
        told = [str(error)]
    told += [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert any("no space left" in line and str(disk.mount) in line for line in told), told
    names = whole(disk.mount / "run")
    assert 2 <= len(names) <= 4 and names[0] == "checkpoint_000000", names
    for name in names:
        assert (disk.mount / "run" / name / "model").stat().st_size == config["bytes"]
    assert not list((disk.mount / "run").glob("*.damaged")) and not (disk.mount / "run" / ".staging").exists()


def test_the_rule_of_this_file_does_what_it_says() -> None:
    assert expected([3.0, 1.0, 2.0], 1, "max") == [[0], [1, 0], [2, 0]]
    assert expected([3.0, 1.0, 2.0], 1, None) == [[0], [1], [2]]
    assert expected([NAN, 1.0, None], 1, "min") == [[0], [1], [2, 1]]
    assert expected([2.0, 1.0], 3, "max") == [[0], [1, 0]]
    for scores, order in itertools.product(SCORES, ("max", "min")):
        for step, state in enumerate(expected(scores, 2, order)):
            assert step in state and len(state) <= 3
