"""The comparison of what two runs of a script have left behind: it finds each difference, and nothing where there is none."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ray_files import differences, fields

TRIAL = "results/search/train_{id}_00000_0_lr=0.1000_{date}"


def leave(directory: Path, id: str, date: str) -> Path:
    """What a search of one trial leaves, with the names that a run makes up."""
    trial = directory / TRIAL.format(id=id, date=date)
    checkpoint = trial / "checkpoint_000001"
    checkpoint.mkdir(parents=True)
    (trial.parent / "tuner.pkl").touch()
    (trial / "params.json").write_text(json.dumps({"lr": 0.1, "path": str(directory)}))
    reports = [{"loss": 0.5, "trial_id": f"{id}_00000", "none": None}, {"loss": 0.25, "trial_id": f"{id}_00000"}]
    (trial / "result.json").write_text("".join(json.dumps(report) + "\n" for report in reports))
    (trial / "progress.csv").write_text("loss,none\n0.5,\n0.25,\n")
    (trial / f"events.out.tfevents.{date[-2:]}.host").touch()
    (checkpoint / "state.json").write_text('{"step": 2}')
    table = directory / "rows"
    table.mkdir()
    for number, rows in enumerate(([2, 1], [3])):
        pd.DataFrame({"x": rows}).to_parquet(table / f"{id}_{number:06d}.parquet")
    return trial


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    for name, id, date in (("ours", "0a1b2", "2026-01-02_03-04-05"), ("theirs", "9f8e7", "2026-05-06_07-08-09")):
        leave(tmp_path / name, id, date)
    return tmp_path / "ours", tmp_path / "theirs"


def compare(two: tuple[Path, Path], printed: str = '{"best": 1}', **on_purpose: str) -> list[str]:
    ours, theirs = fields(two[0], '{"best": 1}'), fields(two[1], printed)
    return differences(ours, theirs, on_purpose, "script.py")[0]


def test_names_that_a_run_makes_up_are_no_difference(two: tuple[Path, Path]) -> None:
    found = fields(two[0], '{"best": 1}')
    trial = 'results/search/trial {"lr": 0.1, "path": "HERE"}'
    assert found[f"{trial}:directory"] == "train_ID_00000_0_lr=0.1000_DATE"
    assert found[f"{trial}/result.json[1]:loss"] == 0.25
    assert found[f"{trial}/progress.csv:loss[0]"] == 0.5
    assert found[f"{trial}/checkpoint 0/state.json:step"] == 2
    assert (found["rows/x int64"], found["rows/files"], found["printed:best"]) == ([1, 2, 3], 2, 1)
    assert compare(two) == []


def trial_of(directory: Path) -> Path:
    (found,) = directory.glob("results/search/train_*")
    return found


CHANGES: dict[str, Callable[[Path], Any]] = {
    "progress.csv:loss[1]: ours 0.25, Ray's 0.3": lambda trial: (trial / "progress.csv").write_text("loss\n0.5\n0.3\n"),
    "only ours: TRIAL/result.json[1]:loss": lambda trial: (trial / "result.json").write_text('{"loss": 0.5}\n'),
    "only Ray's: TRIAL/error.txt": lambda trial: (trial / "error.txt").touch(),
    "only ours: TRIAL/checkpoint 0/state.json:step": lambda trial: shutil.rmtree(trial / "checkpoint_000001"),
    "TRIAL:checkpoints[0]: ours 'checkpoint_000001', Ray's 'checkpoint_000002'": lambda trial: (
        trial / "checkpoint_000001"
    ).rename(trial / "checkpoint_000002"),
    "state.json:step: ours 2, Ray's '2'": lambda trial: (trial / "checkpoint_000001" / "state.json").write_text(
        '{"step": "2"}'
    ),
    "TRIAL:directory: ours 'train_ID_00000_0_lr=0.1000_DATE', Ray's 'other'": lambda trial: trial.rename(
        trial.with_name("other")
    ),
    "rows/files: ours 2, Ray's 1": lambda trial: next(trial.parents[2].glob("rows/*_000001.parquet")).unlink(),
}


@pytest.mark.parametrize("expected", CHANGES)
def test_each_difference_is_found(two: tuple[Path, Path], expected: str) -> None:
    CHANGES[expected](trial_of(two[1]))
    found = "\n".join(compare(two)).replace('results/search/trial {"lr": 0.1, "path": "HERE"}', "TRIAL")
    assert expected in found, found


def test_what_is_printed_is_compared_by_its_fields(two: tuple[Path, Path]) -> None:
    assert compare(two, '{"best": 2}') == ["printed:best: ours 1, Ray's 2"]
    assert compare(two, "the best is 1") == ["only Ray's: printed = 'the best is 1'", "only ours: printed:best = 1"]


def test_reasons_excuse_what_they_name_and_are_counted(two: tuple[Path, Path]) -> None:
    ours, theirs = fields(two[0], '{"best": 1, "time": 1.0}'), fields(two[1], '{"best": 2, "time": 3.0}')
    reasons = {":time$": "the clock", "^other.py .*best": "another script", "never": "nothing"}
    assert differences(ours, theirs, reasons, "script.py") == (["printed:best: ours 1, Ray's 2"], {":time$"})
    assert differences(ours, theirs, reasons, "other.py") == ([], {":time$", "^other.py .*best"})
