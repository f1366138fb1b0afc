"""The screen, the files, `ResultGrid` and `carril tune` show the same trials, states and numbers, whatever has happened to a search."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401

from carril import tune
from carril.exceptions import NotFoundError
from carril.train import Checkpoint, RunConfig
from carril.train import _console_text as words
from carril.tune import ResultGrid, TuneConfig, TuneError, Tuner
from carril.tune._stored import read_experiment
from carril.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining

CARRIL = str(Path(sys.executable).parent / "carril")
STEPS = 24

pytestmark = pytest.mark.usefixtures("head")

Row = tuple[str, str, str]


def train(config: dict[str, Any]) -> None:
    latest = tune.get_checkpoint()
    first = latest.to_dict()["step"] + 1 if latest is not None else 0
    for step in range(first, STEPS):
        loss = config["x"] / (step + 1)
        if config["odd"] == "nan" and step == STEPS - 1:
            loss = math.nan
        if config["odd"] == "fails" and step == 3:
            raise ValueError("no luck")
        metrics = {"loss": loss} if config["odd"] != "lacks" or step % 2 == 0 else {"other": 1}
        tune.report(metrics, checkpoint=Checkpoint.from_dict({"step": step}))


def on_the_screen(output: str) -> tuple[dict[str, Row], str]:
    """State, reports and loss of each trial in the closing table, and the line about the best one."""
    lines = output.splitlines()
    start = max(at for at, line in enumerate(lines) if line.startswith("carril: `search` "))
    header = lines[start + 1]
    ends, rows = {}, {}
    for title in ("state", "reports", "loss"):
        at = header.index(f" {title}") + 1
        # The first columns begin below their titles, the others end there.
        ends[title] = (at, None) if title == "state" else (None, at + len(title))
    for line in lines[start + 2 :]:
        if not line.startswith("  train_"):
            break
        state = line[ends["state"][0] :].split()[0]
        reports, loss = ((line[: ends[title][1]].rpartition("  ")[2]).strip() for title in ("reports", "loss"))
        rows[line.split()[0]] = (state, reports, loss if len(line) >= (ends["loss"][1] or 0) else "")
    best = [line.split("best")[1].strip() for line in lines[start:] if line.startswith("  best  ")]
    return rows, best[0] if best else ""


def in_the_grid(grid: ResultGrid) -> dict[str, Row]:
    rows = {}
    for view in grid.views():
        loss = (view.metrics or {}).get("loss")
        state = view.status
        shown = "" if loss is None else words.value(float(loss))
        rows[view.name] = (state, f"{view.iterations}" if view.iterations else "", shown)
    return rows


def by_the_command(path: Path) -> tuple[dict[str, Row], str | None]:
    def run(*arguments: str) -> list[dict[str, Any]]:
        command = [CARRIL, "tune", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return [json.loads(line) for line in done.stdout.splitlines()]

    rows = {}
    for row in run("show", str(path)):
        loss = row.get("loss")
        state = row["trial/state"]
        reports = row["trial/iterations"]
        name = f"train_{row['trial/id']}"
        rows[name] = (state, f"{reports}" if reports else "", "" if loss is None else words.value(float(loss)))
    best = run("best", str(path))
    return rows, best[0]["trial_id"] if best else None


def by_the_files(path: Path) -> dict[str, tuple[str, str]]:
    """How many reports each trial has made and what the last of them was, by its own file alone."""
    rows = {}
    for trial in read_experiment(path).trials:
        file = path / trial.directory / "result.json"
        reported = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        loss = reported[-1].get("loss") if reported else None
        reports = str(reported[-1]["training_iteration"]) if reported else ""
        rows[trial.name] = (reports, "" if loss is None else words.value(float(loss)))
    return rows


def check(path: Path, output: str, grid: ResultGrid | None = None) -> dict[str, Row]:
    grid = grid if grid is not None else ResultGrid.of(read_experiment(path))
    seen, best_seen = on_the_screen(output)
    held, (told, best_told), kept = in_the_grid(grid), by_the_command(path), by_the_files(path)
    assert seen == held, output
    assert {name: row[:2] for name, row in told.items()} == {name: row[:2] for name, row in held.items()}
    for name, (reports, loss) in kept.items():
        assert held[name][1] == reports, name
        if loss:
            # GRID-3: a report without the metric leaves the one before it.
            assert held[name][2] == told[name][2] == loss, name
    try:
        best = grid.get_best_result()
    except NotFoundError:
        assert best_seen == "" and best_told is None
        return held
    identity = best._trial.id  # type: ignore[attr-defined]
    assert best_told == identity and f" · train_{identity} · " in best_seen, (best_told, best_seen)
    return held


def tuner(
    storage: Path, scheduler: Any = None, odd: list[str] | None = None, samples: int = 1, **options: Any
) -> Tuner:
    return Tuner(
        train,
        param_space={"x": tune.uniform(0.1, 1), "odd": tune.grid_search(odd or ["", "", "", ""])},
        tune_config=TuneConfig(metric="loss", mode="min", num_samples=samples, scheduler=scheduler),
        run_config=RunConfig(name="search", storage_path=str(storage), **options),
    )


SCHEDULERS: dict[str, Callable[[], Any]] = {
    "fifo": lambda: None,
    "asha": lambda: ASHAScheduler(max_t=STEPS, grace_period=2, reduction_factor=2),
    "hyperband": lambda: HyperBandScheduler(max_t=STEPS, reduction_factor=3),
    "pbt": lambda: PopulationBasedTraining(
        perturbation_interval=3, hyperparam_mutations={"x": tune.uniform(0.1, 1)}, seed=1
    ),
}


@pytest.mark.parametrize("kind", list(SCHEDULERS))
def test_at_the_end_of_a_search(storage: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    grid = tuner(storage, SCHEDULERS[kind](), samples=2).fit()
    rows = check(storage / "search", capsys.readouterr().out, grid)
    assert len(rows) == 8
    states = {state for state, _, _ in rows.values()}
    assert states <= {"terminated", "stopped"}
    assert ("stopped" in states) == (kind in ("asha", "hyperband")), "what a scheduler ends before its time is marked"


def test_trials_that_fail_diverge_or_leave_the_metric_out(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = tuner(storage, odd=["", "nan", "fails", "lacks"]).fit()
    rows = check(storage / "search", capsys.readouterr().out, grid)
    assert [row[0] for row in rows.values()].count("error") == 1
    assert "nan" in [row[2] for row in rows.values()]
    with pytest.raises(NotFoundError, match="did you mean `loss`"):
        grid.get_best_result(metric="los")
    with pytest.raises(KeyError, match="did you mean `loss`"):
        grid[0].metrics["los"]  # type: ignore[index]
    html = grid._repr_html_()
    assert html.count("<tr>") == 5 and "error" in html and "best: loss" in html


def test_a_search_that_ends_without_its_metric_has_nothing_that_runs(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(config: dict[str, Any]) -> None:
        tune.report({"los": config["x"]})

    silent.__name__ = "train"
    search = Tuner(
        silent,
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=RunConfig(name="search", storage_path=str(storage)),
    )
    with pytest.raises(TuneError, match="no trial reported the metric `loss`"):
        search.fit()
    output = capsys.readouterr().out
    closing = output[output.rindex("carril: `search` failed") :]
    assert "running" not in closing and "pending" not in closing, closing


KILLED = """
import os, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_tune_same_numbers as shared
from carril import tune

of_the_test = shared.train

def train(config):
    if tune.get_checkpoint() is None and not os.path.exists({go!r}) and tune.get_context().get_trial_id()[-1] in "56":
        while not os.path.exists({go!r}):
            time.sleep(0.01)
    of_the_test(config)

shared.train = train
if __name__ == "__main__":
    shared.tuner(Path({storage!r}), shared.SCHEDULERS[{kind!r}](), samples=2).fit()
"""


@pytest.mark.parametrize("kind", ["fifo", "asha", "pbt"])
def test_a_search_that_was_killed_and_resumed(scripts: Scripts, tmp_path: Path, kind: str) -> None:
    storage, go = tmp_path / "storage", tmp_path / "go"
    path = storage / "search"
    text = KILLED.format(tests=str(Path(__file__).parent), storage=str(storage), go=str(go), kind=kind)
    first = scripts.start(text)

    def come_far() -> bool:
        """Some trials have ended; of a population, in which they take turns, some have reported."""
        if not (path / "trials.jsonl").exists():
            return False
        trials = read_experiment(path).trials
        if kind == "pbt":
            return sum((path / trial.directory / "result.json").exists() for trial in trials) >= 4
        return sum(trial.is_over for trial in trials) >= 3

    wait_until(come_far, "some trials have come far", patience=120)
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    wait_until(lambda: not any(trial.status == "running" for trial in read_experiment(path).trials), "the head is gone")
    grid = ResultGrid.of(read_experiment(path))
    told, _ = by_the_command(path)
    assert {name: row[:2] for name, row in told.items()} == {name: row[:2] for name, row in in_the_grid(grid).items()}
    go.touch()
    output = scripts.run(text)
    assert "8 of 8 trials done" in output, output
    assert len(check(path, output)) == 8
