"""Searches whose files were damaged, or whose driver was killed at a bad moment: every trial is there once, with what it reported."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401

from carril import tune
from carril.exceptions import StorageError
from carril.train import Checkpoint, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune._stored import StoredTrial, read_experiment
from carril.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining

STEPS = 4

pytestmark = pytest.mark.usefixtures("head")

KILLED = """
import os, time
from carril import tune
from carril.train import Checkpoint
from carril.tune import RunConfig, TuneConfig, Tuner

def train(config):
    latest = tune.get_checkpoint()
    first = latest.to_dict()["step"] + 1 if latest is not None else 0
    for step in range(first, 4):
        tune.report({{"loss": 1 / (step + 1 + config["x"])}}, checkpoint=Checkpoint.from_dict({{"step": step}}))
    # Reported, and not ended.
    while not os.path.exists({go!r}):
        open({mark!r} + str(config["x"]), "w").close()
        time.sleep(0.01)

if __name__ == "__main__":
    grid = Tuner(
        train,
        param_space={{"x": tune.grid_search([0, 1])}},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(name="search", storage_path={storage!r}),
    ).fit()
    print("losses", [round(result.metrics["loss"], 3) for result in grid], flush=True)
"""


def results_of(path: Path, trial: Any) -> list[dict[str, Any]]:
    """What a trial reported, by its own file."""
    return [json.loads(line) for line in (path / trial.directory / "result.json").read_text().splitlines()]


def test_a_driver_killed_between_the_last_report_and_the_end(scripts: Scripts, tmp_path: Path) -> None:
    storage, go, mark = tmp_path / "storage", tmp_path / "go", tmp_path / "mark"
    text = KILLED.format(storage=str(storage), go=str(go), mark=str(mark))
    first = scripts.start(text)
    wait_until(lambda: all(Path(f"{mark}{x}").exists() for x in (0, 1)), "both trials have reported all")
    stored = "search/*/checkpoint_000003/.manifest.json"
    wait_until(lambda: len(list(storage.glob(stored))) == 2, "their last checkpoints are stored")
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    path = storage / "search"
    before = read_experiment(path).trials
    assert [len(results_of(path, trial)) for trial in before] == [4, 4] and not any(one.is_over for one in before)
    go.touch()
    output = scripts.run(text)
    assert "losses [0.25, 0.2]" in output, output
    assert "2 of 2 trials done" in output and "best        loss 0.2 " in output, output
    for trial in read_experiment(path).trials:
        assert trial.is_over and trial.iterations == 4 and len(results_of(path, trial)) == 4, trial
        assert trial.metrics is not None and trial.metrics["loss"] == results_of(path, trial)[-1]["loss"]


def test_files_that_are_emptied_while_the_search_goes_on(scripts: Scripts, tmp_path: Path) -> None:
    """`trials.jsonl` is written again, `progress.csv` is made from the reports; reports that are in no file are warned of."""
    storage, go, mark = tmp_path / "storage", tmp_path / "go", tmp_path / "mark"
    script = scripts.start(KILLED.format(storage=str(storage), go=str(go), mark=str(mark)))
    wait_until(lambda: all(Path(f"{mark}{x}").exists() for x in (0, 1)), "both trials have reported all")
    path = storage / "search"
    tables = [path / trial.directory / "progress.csv" for trial in read_experiment(path).trials]
    wait_until(lambda: all(len(table.read_text().splitlines()) == 5 for table in tables), "the reports are written")
    before = [table.read_text() for table in tables]
    for file in [path / "trials.jsonl", *tables, tables[1].with_name("result.json")]:
        os.truncate(file, 0)
    go.touch()
    script.finish()
    assert "losses [0.25, 0.2]" in script.output, script.output
    experiment = read_experiment(path)
    assert [(trial.number, trial.status) for trial in experiment.trials] == [(0, "terminated"), (1, "terminated")]
    assert experiment.unreadable == 0 and '"opened"' in (path / "trials.jsonl").read_text().splitlines()[0]
    assert tables[0].read_text() == before[0] and tables[1].read_text() == before[1].splitlines(keepends=True)[0]
    shown = " ".join(script.output.split())
    assert "trials.jsonl` was cut short" in shown, script.output
    assert "result.json` was cut short while the run was going on: 4 reports are missing from it" in shown, (
        script.output
    )


def noting(notes: Path) -> Callable[[dict[str, Any]], None]:
    """A function that notes each of its starts."""

    def train(config: dict[str, Any]) -> None:
        with open(notes, "a") as file:
            file.write("start\n")
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        for step in range(first, STEPS):
            tune.report({"loss": config["x"] / (step + 1)}, checkpoint=Checkpoint.from_dict({"step": step}))

    return train


def starts(notes: Path) -> int:
    return len(notes.read_text().splitlines())


def search(storage: Path, train: Any, scheduler: Any = None, space: dict[str, Any] | None = None) -> Path:
    Tuner(
        train,
        param_space=space or {"x": tune.uniform(0.1, 1)},
        tune_config=TuneConfig(metric="loss", mode="min", num_samples=6, scheduler=scheduler),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=0),
    ).fit()
    return storage / "search"


def as_it_was(trial: StoredTrial) -> tuple[Any, ...]:
    """What a damaged file must not change of a trial that has ended."""
    return (trial.id, trial.directory, trial.config, trial.status, trial.early, trial.reason, trial.metrics)


def damaged(lines: list[bytes], chance: random.Random) -> bytes:
    """The file cut off at any byte, without some of its lines, with lines that are no JSON, or shuffled, or with others."""
    whole = b"".join(lines)
    kind = chance.randrange(5)
    if kind == 3:
        return b"".join(chance.sample(lines, len(lines)))
    if kind == 4:
        others = [
            b'{"trial":99999999999,"event":"started","at":1.0}\n',
            b'{"trial":{"a":1},"event":"made"}\n',
            b"[1]\n",
        ]
        mixed = [*lines, *lines[: len(lines) // 2], *others]
        return b"".join(chance.sample(mixed, len(mixed)))
    if kind == 0:
        return whole[: chance.randrange(len(whole))]
    if kind == 1:
        return b"".join(line for line in lines if chance.random() < 0.7)
    return b"".join(line if chance.random() < 0.8 else line[: len(line) // 2] + b"\n" for line in lines)


@pytest.mark.parametrize("scheduled", [False, True])
def test_damaged_lines_are_read_back_and_nothing_is_run_again(storage: Path, tmp_path: Path, scheduled: bool) -> None:
    notes = tmp_path / "notes"
    train = noting(notes)
    path = search(storage, train, ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=2) if scheduled else None)
    before = read_experiment(path).trials
    lines = (path / "trials.jsonl").read_bytes().splitlines(keepends=True)
    chance = random.Random(18)
    for content in [b"", *(damaged(lines, chance) for _ in range(12))]:
        (path / "trials.jsonl").write_bytes(content)
        assert [as_it_was(trial) for trial in read_experiment(path).trials] == [as_it_was(trial) for trial in before]
        so_far = starts(notes)
        grid = Tuner.restore(path, train).fit()
        assert starts(notes) == so_far, "what has ended is not run again"
        assert len(grid) == 6 and not grid.errors, grid
        after = read_experiment(path).trials
        assert [trial.number for trial in after] == list(range(6))
        assert [as_it_was(trial) for trial in after] == [as_it_was(trial) for trial in before]
        for trial, result in zip(after, grid, strict=True):
            last = results_of(path, trial)[-1]
            assert trial.status == "terminated" and result.metrics is not None
            assert (result.metrics["loss"], trial.iterations) == (last["loss"], last["training_iteration"])
            assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] + 1 == trial.iterations
        assert len(list(path.glob("train_*"))) == 6, "no trial has two directories"


PAUSING = {
    "hyperband": lambda: HyperBandScheduler(max_t=STEPS, reduction_factor=2),
    "pbt": lambda: PopulationBasedTraining(
        perturbation_interval=1, hyperparam_mutations={"x": tune.uniform(0.1, 1)}, seed=3
    ),
}


@pytest.mark.parametrize("kind", list(PAUSING))
def test_damaged_lines_of_a_search_that_pauses_trials(storage: Path, tmp_path: Path, kind: str) -> None:
    train = noting(tmp_path / "notes")
    path = search(storage, train, PAUSING[kind]())
    before = [as_it_was(trial) for trial in read_experiment(path).trials]
    kept = tmp_path / "kept"
    shutil.copytree(path, kept)
    lines = (path / "trials.jsonl").read_bytes().splitlines(keepends=True)
    chance = random.Random(18)
    for content in [b"", *(damaged(lines, chance) for _ in range(7))]:
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        (path / "trials.jsonl").write_bytes(content)
        grid = Tuner.restore(path, train).fit()
        after = read_experiment(path).trials
        assert [trial.number for trial in after] == list(range(6)), content.decode(errors="replace")
        assert [as_it_was(trial) for trial in after] == before, content.decode(errors="replace")
        for trial, result in zip(after, grid, strict=True):
            last = results_of(path, trial)[-1]
            assert result.metrics is not None and result.metrics["loss"] == last["loss"], trial


def test_a_config_with_objects_is_read_back_as_it_was(storage: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def train(config: dict[str, Any]) -> None:
        with open(seen, "a") as file:
            file.write(f"{config['x']} {config['make']([3, 4])}\n")
        tune.report({"loss": config["x"]})
        if not os.path.exists(f"{seen}.go"):
            raise ValueError("not yet")

    tuner = Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2]), "make": sum},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=0),
    )
    assert len(tuner.fit().errors) == 2
    path = storage / "search"
    (path / "trials.jsonl").write_bytes(b"")
    Path(f"{seen}.go").touch()
    grid = Tuner.restore(path, train, resume_errored=True).fit()
    assert not grid.errors, grid.errors
    assert sorted(seen.read_text().splitlines()) == ["1 7", "1 7", "2 7", "2 7"]


def test_what_restore_cannot_open_is_one_clear_error_and_can_restore_says_so(storage: Path, tmp_path: Path) -> None:
    train = noting(tmp_path / "notes")
    path = search(storage, train)
    kept = path / "tuner.pkl"
    whole = kept.read_bytes()
    assert Tuner.can_restore(path) and oct(kept.stat().st_mode)[-3:] == "600"
    chance = random.Random(8)
    damages = [None, b"", b"\n", *(whole[: chance.randrange(len(whole))] for _ in range(12))]
    for _ in range(12):
        at = chance.randrange(len(whole))
        damages.append(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
    for data in damages:
        kept.unlink(missing_ok=True)
        if data is not None:
            kept.write_bytes(data)
        assert Tuner.can_restore(path) is False, data
        with pytest.raises(StorageError) as raised:
            Tuner.restore(path, train)
        text = str(raised.value)
        assert text.startswith(f"the experiment cannot be restored: `{kept}` ") and "param_space=…" in text, (
            f"TRESTORE-2: {text}"
        )
    given: dict[str, Any] = {
        "param_space": {"x": tune.uniform(0.1, 1)},
        "tune_config": TuneConfig(metric="loss", mode="min", num_samples=8),
        "run_config": RunConfig(verbose=0),
    }
    assert len(Tuner.restore(path, train, **given).fit()) == 8, "what is given is not needed from the file"
    assert Tuner.can_restore(path), "and is kept again"


@pytest.mark.parametrize("content", [None, b"", b'{"name": "sea'])
def test_a_search_whose_record_is_lost_is_the_same_search(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    notes = tmp_path / "notes"
    train = noting(notes)
    path = search(storage, train)
    record, before = path / "experiment.json", read_experiment(path)
    kept, what = json.loads(record.read_text()), "missing" if content is None else "damaged"

    def lose() -> None:
        record.unlink() if content is None else record.write_bytes(content)

    lose()
    with pytest.warns(UserWarning, match=rf"experiment\.json` is {what}: this is what `trials.jsonl` says"):
        found = read_experiment(path)
    assert found.trials == before.trials and (found.name, found.metric, found.mode) == ("search", "loss", "min")
    with pytest.warns(UserWarning, match=what):
        assert Tuner.can_restore(path)
    capsys.readouterr()
    more = TuneConfig(metric="loss", mode="min", num_samples=7)
    with pytest.warns(UserWarning, match=what):
        tuner = Tuner.restore(path, train, tune_config=more, run_config=RunConfig(verbose=1))
    assert len(tuner.fit()) == 7 and starts(notes) == 7, "what has ended is not run again"
    said = " ".join(capsys.readouterr().out.split())
    assert f"`experiment.json` of the search was {what}, and is made again from `trials.jsonl`" in said, said
    again = json.loads(record.read_text())
    assert [again[name] for name in ("id", "seed", "created")] == [kept[name] for name in ("id", "seed", "created")]
    # Without the lines the trials are in their directories.
    lose()
    (path / "trials.jsonl").unlink()
    many = TuneConfig(metric="loss", mode="min", num_samples=8)
    tuner = Tuner.restore(path, train, tune_config=many, run_config=RunConfig(verbose=1))
    grid = tuner.fit()
    assert len(grid) == 8 and starts(notes) == 8, "what has ended is not run again"
    said = " ".join(capsys.readouterr().out.split())
    assert "is made again from the directories of its 7 trials, which keep their configs" in said, said
    after = read_experiment(path).trials
    assert [as_it_was(trial) for trial in after[:6]] == [as_it_was(trial) for trial in before.trials]


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": "x"}', b"\xff\x00 no JSON"])
def test_the_damaged_record_of_a_trial_is_written_again(storage: Path, tmp_path: Path, content: bytes) -> None:
    go = tmp_path / "go"

    def train(config: dict[str, Any]) -> None:
        latest = tune.get_checkpoint()
        if latest is None:
            tune.report({"loss": 1.0}, checkpoint=Checkpoint.from_dict({"x": config["x"]}))
        if not go.exists():
            raise ValueError("not yet")
        assert latest is not None and latest.to_dict() == {"x": config["x"]}
        tune.report({"loss": 0.5})

    grid = Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1])},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=0),
    ).fit()
    assert len(grid.errors) == 2
    path = storage / "search"
    records = sorted(path.glob("train_*/run.json"))
    records[0].write_bytes(content)
    go.touch()
    again = Tuner.restore(path, train, resume_errored=True).fit()
    assert not again.errors and [result.metrics["loss"] for result in again] == [0.5, 0.5], again.errors
    assert json.loads(records[0].read_text())["status"] == "finished"
    assert sorted(path.glob("train_*/run.json")) == records
