"""The classifiers in Rust, run as their users run them, and the first program of somebody who has read the guide.

`make test-examples` builds the classifiers first. What is looked at is what they print and the files of their runs: none
of it is a word of Candle or of Burn.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "rust"
PROGRAMS = ("candle_digits", "burn_digits")
LAST_LINE = re.compile(r"^accuracy (\d+\.\d)% after (\d+) epochs with \d workers?, in (.+)$", re.MULTILINE)
# Ten times what any of these runs takes on a slow machine.
DEADLINE_S = 180
# As `Arguments` has it.
PATIENCE = 6
# Crates of ours are compiled for a project outside of this workspace; those of others are there already.
BUILD_S = 1800


class Run:
    """One run of a program: its name and storage are the test's."""

    def __init__(self, program: str, storage: Path, name: str) -> None:
        self.program, self.storage, self.name = program, storage, name
        self.directory = storage / name

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [str(ROOT / "target" / "release" / self.program), "--name", self.name, "--storage", str(self.storage)]
        environment = {**os.environ, "TMPDIR": str(self.storage), "XDG_RUNTIME_DIR": str(self.storage)}
        return subprocess.Popen(
            [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self, driver: subprocess.Popen[str]) -> tuple[float, int, str]:
        """The accuracy, the number of epochs, and what was printed on the way."""
        printed, told = driver.communicate(timeout=DEADLINE_S)
        assert driver.returncode == 0, told
        line = LAST_LINE.fullmatch(printed.strip())
        assert line, printed + told
        assert Path(line[3]).is_relative_to(self.directory), line[3]
        return float(line[1]), int(line[2]), told

    def fit(self, *arguments: str) -> tuple[float, int, str]:
        return self.end(self.start(*arguments))

    def rows(self, file: str = "result.json") -> list[dict]:
        path = self.directory / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def column(self, name: str, file: str = "result.json") -> list[float]:
        return [row[name] for row in self.rows(file)]


def until(driver: subprocess.Popen[str], what: str, look: Callable[[], Any]) -> Any:
    """Waits, with a deadline, until `look` sees something, while the driver runs."""
    end = time.monotonic() + DEADLINE_S
    while not (seen := look()):
        assert driver.poll() is None, f"the driver ended before {what}: {driver.communicate()}"
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.001)
    return seen


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_workers_read_as_well_as_one(program: str, tmp_path: Path) -> None:
    one, two = Run(program, tmp_path, "one"), Run(program, tmp_path, "two")
    alone, _, _ = one.fit("--workers", "1")
    together, epochs, _ = two.fit("--workers", "2")
    assert alone > 95
    assert together > 95
    assert abs(together - alone) <= 1.5
    # Early stop: no epoch after the best one was better, and there could have been more of them.
    assert epochs < 40
    assert epochs == two.rows()[-1]["best_epoch"] + PATIENCE == len(two.rows())
    # The mean of two halves' gradients is the gradient of the whole: both runs go the same way, up to rounding.
    assert two.column("loss")[0] == pytest.approx(one.column("loss")[0], rel=1e-3)
    # Ranks learn from different images and have the same weights.
    ranks = ["ranks/rank_0.json", "ranks/rank_1.json"]
    assert two.column("loss", ranks[0]) != two.column("loss", ranks[1])
    assert two.column("validation", ranks[0]) == two.column("validation", ranks[1])
    assert two.column("accuracy", ranks[0]) == two.column("accuracy", ranks[1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_that_goes_on_does_as_if_it_had_never_ended(program: str, tmp_path: Path) -> None:
    parted, whole = Run(program, tmp_path, "parted"), Run(program, tmp_path, "whole")
    _, epochs, told = parted.fit("--epochs", "2")
    assert (epochs, "going on" in told) == (2, False)
    _, epochs, told = parted.fit("--epochs", "4")
    assert (epochs, "(rank 0) going on after epoch 2\n" in told) == (4, True), told
    whole.fit("--epochs", "4")
    assert parted.column("epoch") == [1, 2, 3, 4]
    for name in ("loss", "validation", "accuracy", "best_epoch"):
        assert parted.column(name) == whole.column(name), name


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_rank_that_is_killed_costs_no_epoch_that_was_saved(program: str, tmp_path: Path) -> None:
    run = Run(program, tmp_path, "killed")
    driver = run.start("--epochs", "60", "--patience", "60")
    until(driver, "the second checkpoint", (run.directory / "checkpoint_000001" / ".manifest.json").exists)
    (row, *_) = until(driver, "a report", run.rows)
    os.kill(row["pid"], signal.SIGKILL)
    accuracy, epochs, told = run.end(driver)
    assert "carril: restart 1: rank 0 " in told, told
    after = re.search(r"\(rank 0\) going on after epoch (\d+)\n", told)
    assert after and 2 <= int(after[1]) < 60, told
    assert run.column("epoch") == list(range(1, 61)), "each epoch once"
    assert (epochs, accuracy > 95) == (60, True)


def test_the_programs_are_those_that_are_run_here() -> None:
    assert {path.stem for path in (PACKAGE / "src" / "bin").glob("*.rs")} == set(PROGRAMS)


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    driver = Run("candle_digits", tmp_path, "wrong").start("--worker", "3")
    assert driver.communicate(timeout=DEADLINE_S)[1] == "error: there is no argument `--worker`\n"
    assert driver.returncode == 2


def test_the_first_lines_of_the_guide_and_of_the_readme_train_something(tmp_path: Path) -> None:
    """As somebody types them, but that nothing is fetched, or compiled otherwise than for this workspace."""
    guide, readme = (ROOT / "docs" / "guide" / "rust.md").read_text(), (ROOT / "README.md").read_text()
    typed = re.search(r"^```sh\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    program = re.search(r"^```rust,no_run\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert typed and program
    environment = {**os.environ, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "CARGO_NET_OFFLINE": "true"}

    def run(script: str, directory: Path, **more: str) -> str:
        command, settings = ["bash", "-euc", script], {**environment, **more}
        done = subprocess.run(
            command, cwd=directory, env=settings, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(typed[1].replace("<clone>", str(ROOT)), tmp_path)
    project = tmp_path / "first"
    (project / "src" / "main.rs").write_text(program[1])
    profile = (ROOT / "Cargo.toml").read_text().partition("[profile.release]\n")[2]
    with (project / "Cargo.toml").open("a") as manifest:
        manifest.write(f"\n[profile.release]\n{profile}")
    (project / "Cargo.lock").write_bytes((ROOT / "Cargo.lock").read_bytes())
    run(f"cargo build --quiet --release --target-dir '{ROOT / 'target'}'", project)
    printed = run(str(ROOT / "target" / "release" / "first"), project, HOME=str(tmp_path))
    assert re.fullmatch(rf"Some\(32\.0\) 32 {tmp_path}/carril_results/halve_\S+\n", printed), printed
