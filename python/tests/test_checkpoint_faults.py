"""Faults at the calls that a save makes to disk and store: the process is killed there, or the call fails.

CARRIL_FAULT counts these calls in the head-and-agent (see the store crate's `faults`). A first run with nothing but the
log enumerates them; then a run is made for each of a sample of them, one of every kind of call early and one late (all
of them with CARRIL_LONG). The Rust tests do the same for every call with a worker in Rust. What must hold: whatever was
known to be kept is there and whole afterwards, and the same run, or `fit()` again, goes on from it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checkpoint_runs import committed_steps
from runs import fit
from s3_server import Place, S3Server, place_fixture, s3_fixture, set_variables  # noqa: F401

import carril
from carril.exceptions import ConnectionLostError
from carril.train import CheckpointConfig, ControllerError, FailureConfig, Result, WorkerGroupError

LONG = bool(os.environ.get("CARRIL_LONG"))
STEPS = 5
pytestmark = pytest.mark.usefixtures("light_heads")
COMMAND = str(Path(sys.executable).parent / "carril")


class Point(NamedTuple):
    """One call of a save, as the log has it."""

    number: int
    name: str
    path: str
    fired: bool


def points(log: Path) -> list[Point]:
    found = []
    for line in log.read_text().splitlines() if log.exists() else []:
        number, name, path = line.split(" ", 2)
        found.append(Point(int(number), name, path.removesuffix(" fired"), path.endswith(" fired")))
    return found


def sample(all_of_them: list[Point]) -> list[Point]:
    """Every point, or of each kind of call the first one and the last one."""
    if LONG:
        return all_of_them
    names = {point.name for point in all_of_them}
    chosen = set()
    for name in names:
        of_this_name = [point for point in all_of_them if point.name == name]
        chosen |= {of_this_name[0], of_this_name[-1]}
    return sorted(chosen)


def careful() -> Callable[[dict[str, Any]], int]:
    """Saves, waits for each checkpoint to be settled, and notes what it knows then, a line each."""

    def function(config: dict[str, Any]) -> int:
        import os
        import signal
        import tempfile
        import threading
        import time

        from carril import train
        from carril.exceptions import CarrilError

        def passed() -> int:
            if not os.path.exists(config["log"]):
                return 0
            with open(config["log"]) as log:
                return len(log.readlines())

        def die_at() -> None:
            while passed() < config["die_at"]:
                time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGKILL)

        rank = train.get_context().get_world_rank()
        if "die_at" in config and rank == 1:
            threading.Thread(target=die_at, daemon=True).start()
        first, latest = 0, train.get_checkpoint()
        if latest is not None:
            with latest.as_directory() as directory, open(os.path.join(directory, "step")) as file:
                first = int(file.read()) + 1
        with open(f"{config['notes']}.{rank}", "a", buffering=1) as notes:
            if rank == 0 and "log" in config:
                notes.write(f"passed -1 {passed()}\n")
            for step in range(first, config["steps"]):
                notes.write(f"begins {step}\n")
                directory = tempfile.mkdtemp(dir=config["place"])
                for name in ("step", f"shard-{rank}"):
                    with open(os.path.join(directory, name), "w") as file:
                        file.write(str(step))
                try:
                    train.report(
                        {"step": step},
                        checkpoint=train.Checkpoint(directory),
                        delete_local_checkpoint_after_upload=step % 2 == 1,
                    )
                except CarrilError as error:
                    notes.write(f"refused {step} {str(error).splitlines()[0]}\n")
                    # Every rank makes as many reports as the others.
                    train.report({"step": step})
                kept = [one.metrics["step"] for one in train.get_all_reported_checkpoints()]
                notes.write(f"kept {step} {sorted(kept)}\n")
                if rank == 0 and "log" in config:
                    notes.write(f"passed {step} {passed()}\n")
        return first

    return function


class Notes:
    """What rank 0 has noted in all attempts of a run."""

    def __init__(self, path: Path) -> None:
        file = Path(f"{path}.0")
        self.rows = [line.split(" ", 2) for line in file.read_text().splitlines()] if file.exists() else []
        other = Path(f"{path}.1")
        self.refused = [
            line for line in (other.read_text() if other.exists() else "").splitlines() if "refused" in line
        ]
        self.refused += [" ".join(row) for row in self.rows if row[0] == "refused"]

    def last(self, what: str) -> int:
        return max((int(row[1]) for row in self.rows if row[0] == what), default=-1)

    def known(self, step: int) -> bool:
        """Whether it was seen among those that are kept."""
        return any(row[0] == "kept" and f"{step}" in row[2].strip("[]").split(", ") for row in self.rows)

    def passed(self, step: int) -> int:
        return next(int(row[2]) for row in self.rows if row[0] == "passed" and row[1] == str(step))


class Trial:
    """One run in a place of its own, with a head of its own for every `fit()`."""

    def __init__(self, root: Path, uri: str | None, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.uri, self.run = root, uri or str(stored), stored / "run"
        self.log, self._notes = root / "log", root / "notes"
        self._monkeypatch = monkeypatch
        root.mkdir(parents=True)

    def fit(self, fault: str = "", survives: int = 0, **config: Any) -> Result:
        given = {"steps": STEPS, "notes": str(self._notes), "place": str(self.root), **config}
        self._monkeypatch.setenv("CARRIL_FAULT", f"{fault}:{self.log}" if fault else "")
        carril.shutdown()
        carril.init(num_cpus=4)
        # A head that takes the place of this one has no fault.
        self._monkeypatch.setenv("CARRIL_FAULT", "")
        try:
            return fit(
                careful(),
                self.uri,
                2,
                given,
                name="run",
                checkpoint_config=CheckpointConfig(num_to_keep=2),
                failure_config=FailureConfig(max_infrastructure_failures=survives),
            )
        finally:
            carril.shutdown()

    @property
    def notes(self) -> Notes:
        return Notes(self._notes)

    def verify(self) -> None:
        """All that has a manifest is whole, to our reader and to the command."""
        committed_steps(self.run)
        for manifest in self.run.glob("*/.manifest.json"):
            path = str(manifest.parent) if self.uri.startswith("/") else f"{self.uri}/run/{manifest.parent.name}"
            done = subprocess.run([COMMAND, "verify", path], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

    def left(self) -> list[Path]:
        """What was on its way when it was cut, and is still there."""
        return [path for path in (self.run / ".staging").rglob("*") if path.is_file()]

    def forget(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.run.parent, ignore_errors=True)


Trials = Callable[[], Trial]


@pytest.fixture(params=["local", "s3"])
def trials(
    request: pytest.FixtureRequest,
    s3: S3Server,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Trials]:
    """Makes trials on a local path, or in the bucket."""
    made: list[Trial] = []

    def make() -> Trial:
        number = len(made)
        root = tmp_path / f"trial-{number}"
        if request.param == "s3":
            set_variables(monkeypatch, s3.variables())
            made.append(Trial(root, f"{place.uri}/{number}", place.directory / str(number), monkeypatch))
        else:
            made.append(Trial(root, None, tmp_path / f"storage-{number}", monkeypatch))
        return made[-1]

    yield make
    carril.shutdown()


@pytest.fixture
def enumerated(trials: Trials) -> list[Point]:
    """The calls of all saves but the last one's: a run whose last checkpoint is lost has failed, which is another case,
    and so is one that cannot begin."""
    trial = trials()
    trial.fit("0:kill", log=str(trial.log))
    found = points(trial.log)[trial.notes.passed(-1) : trial.notes.passed(STEPS - 2)]
    assert len(found) >= 4 * (STEPS - 1) and not any(point.fired for point in found)
    assert committed_steps(trial.run) == [STEPS - 2, STEPS - 1]
    return found


def test_the_agent_is_killed_between_any_two_calls_and_fit_again_goes_on(
    enumerated: list[Point], trials: Trials
) -> None:
    for point in sample(enumerated):
        trial = trials()
        with pytest.raises(ConnectionLostError):
            trial.fit(f"{point.number}:kill")
        (fired,) = [one for one in points(trial.log) if one.fired]
        trial.verify()
        before = trial.notes
        first = trial.fit().return_value
        # What was begun may be there or not; what was before it is there.
        attempted = before.last("begins")
        assert first in (attempted, attempted + 1), (fired, first, attempted)
        assert first > before.last("kept"), (fired, before.rows)
        trial.verify()
        assert committed_steps(trial.run) == [STEPS - 2, STEPS - 1], fired
        assert trial.left() == [], fired
        trial.forget()


def test_the_agent_is_killed_between_any_two_calls_and_the_run_goes_on_by_itself(
    enumerated: list[Point], trials: Trials
) -> None:
    # Every second one will do in the usual size: the test above takes them all.
    for point in sample(enumerated)[:: 1 if LONG else 2]:
        trial = trials()
        result = trial.fit(f"{point.number}:kill", survives=1)
        (fired,) = [one for one in points(trial.log) if one.fired]
        (restart,) = result.restarts
        # Killed while the journal was on its way to the bucket, nobody knows of the first attempt.
        attempts = (0, 1) if fired.name == "put" else (1,)
        assert restart["code"] == "head-lost" and restart["attempt"] in attempts, (fired, restart)
        begun = [int(row[1]) for row in trial.notes.rows if row[0] == "begins"]
        # The second attempt began with the step that was under way, or with the one after it.
        first, steps = result.return_value, list(range(STEPS))
        assert begun in ([*steps[: first + 1], *steps[first:]], steps), (fired, first, begun)
        trial.verify()
        assert committed_steps(trial.run) == [STEPS - 2, STEPS - 1], fired
        assert trial.left() == [], fired
        trial.forget()


@pytest.mark.parametrize("kind", ["enospc", "eio"])
def test_a_call_that_fails_costs_at_most_that_checkpoint_and_the_run_goes_on(
    enumerated: list[Point], trials: Trials, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for point in sample(enumerated):
        trial = trials()
        capsys.readouterr()
        try:
            trial.fit(f"{point.number}:{kind}")
        except ControllerError as error:
            # This time the call belonged to the last save: the order of calls is not the same in every run.
            assert "the last checkpoint could not be stored" in str(error), (point, error)
            assert committed_steps(trial.run)[-1] == STEPS - 2, point
            trial.verify()
            continue
        warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
        (fired,) = [one for one in points(trial.log) if one.fired]
        notes = trial.notes
        lost = [step for step in range(STEPS) if not notes.known(step)]
        assert len(lost) <= 1, (fired, lost, notes.rows)
        assert not lost or warnings or notes.refused, f"{fired}: step {lost} was lost without a word"
        reason = "no space left" if kind == "enospc" else "nput/output error"
        assert all(reason in line for line in [*warnings, *notes.refused]), (fired, warnings, notes.refused)
        trial.verify()
        assert committed_steps(trial.run)[-1] == STEPS - 1, fired
        assert trial.left() == [], fired
        trial.forget()


def test_a_worker_is_killed_at_each_state_of_a_save_and_fit_again_goes_on(
    enumerated: list[Point], trials: Trials
) -> None:
    for point in sample(enumerated):
        trial = trials()
        trial.log.touch()
        with pytest.raises(WorkerGroupError, match=r"rank 1 failed: .*SIGKILL"):
            trial.fit("0:kill", log=str(trial.log), die_at=point.number)
        trial.verify()
        before = trial.notes
        first = trial.fit().return_value
        assert before.last("kept") < first <= before.last("begins") + 1, (point, before.rows)
        trial.verify()
        assert committed_steps(trial.run) == [STEPS - 2, STEPS - 1], point
        assert trial.left() == [], point
        trial.forget()
