"""Damage to checkpoints that were kept: `latest` is the newest that verifies; one that does not is named, set aside and
passed over, and is loaded by nobody.

The run in question failed after its third checkpoint; something happens to its files; `fit()` resumes it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_runs import committed_steps, saves, step_of
from runs import fit

from carril.train import Checkpoint, Result, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")


def _truncate(checkpoint: Path) -> None:
    (checkpoint / "shards" / "1").write_text("1 of")


def _empty(checkpoint: Path) -> None:
    (checkpoint / "step").write_text("")


def _flip(checkpoint: Path) -> None:
    data = bytearray((checkpoint / "shards" / "1").read_bytes())
    data[3] ^= 1
    (checkpoint / "shards" / "1").write_bytes(data)


def _remove(checkpoint: Path) -> None:
    (checkpoint / "shards" / "1").unlink()


def _directory_instead(checkpoint: Path) -> None:
    (checkpoint / "step").unlink()
    (checkpoint / "step").mkdir()


def _manifest_cut(checkpoint: Path) -> None:
    manifest = checkpoint / ".manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-40])


def _manifest_empty(checkpoint: Path) -> None:
    (checkpoint / ".manifest.json").write_text("")


def _manifest_changed(checkpoint: Path) -> None:
    """Well-formed, and about another step: the damage that would be believed without a checksum."""
    manifest = checkpoint / ".manifest.json"
    manifest.write_text(manifest.read_text().replace('"step":2', '"step":7'))


def _manifest_of_another(checkpoint: Path) -> None:
    shutil.copy(checkpoint.parent / "checkpoint_000001" / ".manifest.json", checkpoint / ".manifest.json")


def _manifest_unreadable(checkpoint: Path) -> None:
    """Reading it is an error of the system, as it is above a bad sector."""
    (checkpoint / ".manifest.json").unlink()
    (checkpoint / ".manifest.json").mkdir()


# What is done to the newest checkpoint, and what the message must name.
DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file is truncated": (_truncate, "shards/1"),
    "a file is empty": (_empty, "step"),
    "a bit is flipped": (_flip, "shards/1"),
    "a file is missing": (_remove, "shards/1"),
    "a directory is in the place of a file": (_directory_instead, "step"),
    "the manifest is cut": (_manifest_cut, ".manifest.json"),
    "the manifest is empty": (_manifest_empty, ".manifest.json"),
    "the manifest is changed": (_manifest_changed, ".manifest.json"),
    "the manifest is another's": (_manifest_of_another, ""),
    "the manifest is unreadable": (_manifest_unreadable, ".manifest.json"),
}


@pytest.fixture
def run(storage: Path) -> Path:
    """A run with three checkpoints that has not finished."""
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), storage, config={"steps": 6, "fail_at": 2}, name="hurt")
    assert committed_steps(storage / "hurt") == [0, 1, 2]
    return storage / "hurt"


def goes_on(run: Path) -> int:
    """The step that `fit()` of the same name begins with."""
    result = fit(saves(), run.parent, config={"steps": 4}, name="hurt")
    assert result.checkpoint is not None and step_of(result.checkpoint) == 3
    return int(result.return_value)


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "warning" in line and "another config" not in line]


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_one_is_named_and_set_aside_and_the_one_before_it_is_loaded(
    run: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, file = DAMAGE[what]
    damage(run / "checkpoint_000002")
    kept = {str(path.relative_to(run)) for path in (run / "checkpoint_000002").rglob("*")}
    capsys.readouterr()
    assert goes_on(run) == 2
    (told,) = warnings(capsys)
    assert "checkpoint_000002" in told and file in told, told
    aside = {str(path.relative_to(run)) for path in (run / "checkpoint_000002.damaged").rglob("*")}
    assert aside == {name.replace("checkpoint_000002", "checkpoint_000002.damaged") for name in kept}
    assert committed_steps(run) == [0, 1, 2, 3]


def test_a_directory_without_a_manifest_is_no_checkpoint(run: Path) -> None:
    (run / "checkpoint_000002" / ".manifest.json").unlink()
    assert goes_on(run) == 2
    assert committed_steps(run) == [0, 1, 2, 3]


def test_two_damaged_ones_are_both_named_and_the_third_is_loaded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _flip(run / "checkpoint_000002")
    _truncate(run / "checkpoint_000001")
    capsys.readouterr()
    assert goes_on(run) == 1
    told = warnings(capsys)
    assert len(told) == 2 and {name for name in ("000001", "000002") if name in " ".join(told)} == {"000001", "000002"}


def test_when_all_are_damaged_the_run_begins_anew(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for checkpoint in run.glob("checkpoint_*"):
        _flip(checkpoint)
    capsys.readouterr()
    assert goes_on(run) == 0
    assert len(warnings(capsys)) == 3
    assert committed_steps(run) == [0, 1, 2, 3]


def test_an_older_one_that_is_damaged_does_not_disturb(run: Path) -> None:
    _flip(run / "checkpoint_000000")
    assert goes_on(run) == 3


def test_a_result_passes_damaged_ones_over_and_says_so(run: Path) -> None:
    _manifest_cut(run / "checkpoint_000002")
    with pytest.warns(UserWarning, match=r"checkpoint_000002` is passed over: `\.manifest\.json`"):
        result = Result.from_path(run)
    assert result.checkpoint is not None and step_of(result.checkpoint) == 1
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1]


def test_what_a_user_adds_to_a_checkpoint_is_no_damage(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Checkpoint(run / "checkpoint_000002").set_metadata({"note": "mine"})
    (run / "checkpoint_000002" / "notes.txt").write_text("mine")
    capsys.readouterr()
    assert goes_on(run) == 3
    assert warnings(capsys) == []
    assert Checkpoint(run / "checkpoint_000002").get_metadata() == {"note": "mine"}


def test_what_a_crash_left_is_swept_and_a_directory_of_the_user_s_is_not(run: Path) -> None:
    staging = run / ".staging" / "7" / "rank_0"
    staging.mkdir(parents=True)
    (staging / "model").write_text("half")
    half = run / "checkpoint_000003"
    half.mkdir()
    (half / "step").write_text("99")
    mine = run / "plots"
    mine.mkdir()
    (mine / "loss.png").write_text("x")
    assert goes_on(run) == 3
    assert not (run / ".staging").exists() and (mine / "loss.png").exists()
    assert committed_steps(run) == [0, 1, 2, 3]
