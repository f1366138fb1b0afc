"""kill -9 of the head-and-agent in each state of a run, and of the driver: the run resumes, and nothing of the old is left.

The driver starts a new head by itself, and the run goes on from its newest checkpoint at the cost of one failure of
machines. Between any two calls of a save the head is killed in test_checkpoint_faults.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground, committed_steps
from conftest import processes, wait_until
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401
from driver_scripts import wait_until as wait_for_script
from recovery_runs import journal_of
from runs import fit, trainer

import carril
from carril._internal import driver
from carril.exceptions import ConnectionLostError, InternalError
from carril.train import FailureConfig

CARRIL = str(Path(sys.executable).parent / "carril")
AS_RAY = (CARRIL, "as-ray", "--")
STEPS = 5
WAITS_AT = 2
# Checkpoints of a rank that may be under way at once: they are lost with the head, and their steps made again.
UNDER_WAY = 3


def steps() -> Callable[[dict[str, Any]], int]:
    """Saves a step after the other and notes it; at one of them it waits for a word, or dies for want of it."""

    def function(config: dict[str, Any]) -> int:
        import os
        import time

        from carril import train

        rank = train.get_context().get_world_rank()
        latest = train.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        with open(f"{config['notes']}.{rank}", "a", buffering=1) as notes:
            notes.write(f"begins {first} {os.getpid()}\n")
            for step in range(first, config["steps"]):
                while step == config.get("waits_at") and not os.path.exists(config["go"]):
                    if os.path.exists(config["go"] + "-die") and rank == 1:
                        os.remove(config["go"] + "-die")
                        os._exit(1)
                    time.sleep(0.005)
                given = train.Checkpoint.from_dict({"step": step}) if rank == 0 else None
                train.report({"step": step}, checkpoint=given)
                notes.write(f"made {step} {os.getpid()}\n")
                train.collective.barrier()
        return first

    return function


class Running:
    """One `fit()` in a thread."""

    def __init__(self, storage: Path, name: str, waits_at: int | None = WAITS_AT, **budget: Any) -> None:
        self.run, self._notes, self.go = storage / name, storage / f"notes-{name}", storage / f"go-{name}"
        config = {"notes": str(self._notes), "go": str(self.go), "steps": STEPS, "waits_at": waits_at}
        failure = FailureConfig(**budget)
        self.thread = InBackground(trainer(steps(), storage, config=config, name=name, failure_config=failure).fit)

    def rows(self, what: str, rank: int = 0) -> list[tuple[int, int]]:
        path = Path(f"{self._notes}.{rank}")
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(step), int(pid)) for kind, step, pid in rows if kind == what]

    def is_waiting(self, attempts: int = 1) -> bool:
        """Every rank of that attempt has come to the step where it waits, and the one before it is kept."""
        ranks = (0, 1)
        begun = all(len(self.rows("begins", rank)) == attempts for rank in ranks)
        made = all((WAITS_AT - 1) in [step for step, _ in self.rows("made", rank)] for rank in ranks)
        return begun and made and (self.run / f"checkpoint_{WAITS_AT - 1:06d}" / ".manifest.json").exists()

    def events(self) -> list[str]:
        return [record["event"] for record in journal_of(self.run)] if (self.run / "journal").exists() else []

    def recovered(self, first: int) -> None:
        """The run came home after one lost head, from that step on."""
        result = self.thread.finish()
        (restart,) = [restart for restart in result.restarts if restart["code"] == "head-lost"]
        assert restart["reason"].startswith("the head was lost and was started again (failure 1 of ")
        assert result.return_value == first
        for rank in (0, 1):
            rows = [(row["step"], row["training_iteration"]) for row in result.rank_metrics(rank)]
            assert rows[-(STEPS - first) :] == [(step, step + 1) for step in range(first, STEPS)]
            assert rows[:first] == [(step, step + 1) for step in range(first)] and len(rows) <= STEPS + UNDER_WAY
        assert committed_steps(self.run) == list(range(STEPS))


class Head:
    """The head of now and all that it has started, to see later that they are gone."""

    def __init__(self) -> None:
        client = driver.current_client()
        assert client is not None
        self.pid, self.directory = client.head_pid, client.directory
        self._family = {process.pid for process in processes()}
        assert self.pid in self._family

    @property
    def zygote(self) -> int:
        """Only where there is no worker yet: they look the same."""
        (found,) = [one for one in processes() if one.parent == self.pid and "carril._internal.zygote" in one.command]
        return found.pid

    def kill(self) -> None:
        self._family |= {process.pid for process in processes()}
        os.kill(self.pid, signal.SIGKILL)

    def is_gone(self) -> None:
        """With its workers, its zygote and its directory, while the new one is there."""
        client = driver.current_client()
        assert client is not None and client.head_pid != self.pid
        left = lambda: self._family & {process.pid for process in processes()}  # noqa: E731
        wait_until(lambda: not left(), "nothing of the old head is left", left)
        assert not os.path.exists(self.directory)


@pytest.fixture(autouse=True)
def own_head(light_heads: None) -> Iterator[None]:
    carril.shutdown()
    yield
    carril.shutdown()


@pytest.fixture
def first_head() -> Head:
    carril.init(num_cpus=8)
    return Head()


@pytest.mark.parametrize("fits", [1, 2])
def test_while_the_function_runs(storage: Path, first_head: Head, fits: int) -> None:
    running = [Running(storage, f"run-{number}") for number in range(fits)]
    for each in running:
        wait_until(each.is_waiting, "every rank waits", each.events)
    first_head.kill()
    for each in running:
        wait_until(lambda each=each: each.is_waiting(attempts=2), "the second attempt waits too", each.events)
    first_head.is_gone()
    (head,) = [process for process in processes() if "private-head" in process.command]
    client = driver.current_client()
    assert client is not None and head.pid == client.head_pid, "one new head for all of them"
    for each in running:
        each.go.touch()
        each.recovered(first=WAITS_AT)


@pytest.mark.parametrize("fits", [1, 2])
def test_while_the_workers_are_being_started(storage: Path, first_head: Head, fits: int) -> None:
    fit(lambda: None, storage, workers=1)  # from here on the zygote is there
    # It cannot answer, so that no worker comes to its function.
    os.kill(first_head.zygote, signal.SIGSTOP)
    running = [Running(storage, f"run-{number}", waits_at=None) for number in range(fits)]
    for each in running:
        # The driver must know of it: a head that is lost before it has answered costs nothing.
        wait_until(
            lambda each=each: "Placed" in each.events() and each.thread.is_in("until_ended"),
            "the group is being started",
            each.events,
        )
    first_head.kill()
    for each in running:
        each.recovered(first=0)
        assert len(each.rows("begins")) == 1, "the first attempt never came to its function"
    first_head.is_gone()


@pytest.mark.parametrize("fits", [1, 2])
def test_between_two_attempts(storage: Path, first_head: Head, fits: int) -> None:
    fit(lambda: None, storage, workers=1)
    zygote = first_head.zygote
    running = [Running(storage, f"run-{number}", max_failures=1) for number in range(fits)]
    for each in running:
        wait_until(each.is_waiting, "every rank waits", each.events)
    os.kill(zygote, signal.SIGSTOP)
    for each in running:
        Path(f"{each.go}-die").touch()
        wait_until(lambda each=each: "Restarted" in each.events(), "a rank has died", each.events)
        each.go.touch()
    first_head.kill()
    for each in running:
        each.recovered(first=WAITS_AT)
        result = each.thread.finish()
        assert [restart["code"] for restart in result.restarts] == ["worker-exited", "head-lost"]
        assert len(each.rows("begins")) == 2, "the attempt between never came to its function"
    first_head.is_gone()


@pytest.mark.parametrize("fits", [1, 2])
def test_while_a_checkpoint_is_being_stored(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: int
) -> None:
    log = tmp_path / "calls"
    monkeypatch.setenv("CARRIL_FAULT", f"{12 * fits}:kill:{log}")
    carril.init(num_cpus=8)
    monkeypatch.delenv("CARRIL_FAULT")  # only the first head has it
    head = Head()
    running = [Running(storage, f"run-{number}", waits_at=0) for number in range(fits)]
    for each in running:
        wait_until(lambda each=each: each.rows("begins", 0) and each.rows("begins", 1), "it has begun", each.events)
    for each in running:
        each.go.touch()
    results = [each.thread.finish() for each in running]
    assert log.read_text().count(" fired\n") == 1, "the head died in the middle of a call"
    for each, result in zip(running, results, strict=True):
        each.recovered(first=int(result.return_value))
        made = [step for step, _ in each.rows("made")]
        assert sorted(set(made)) == list(range(STEPS)) and len(made) <= STEPS + UNDER_WAY, made
    head.is_gone()


def test_before_a_run_is_submitted_it_costs_nothing(storage: Path, first_head: Head) -> None:
    first_head.kill()
    running = Running(storage, "run", waits_at=None, max_infrastructure_failures=0)
    assert running.thread.finish().restarts == []
    first_head.is_gone()


def test_the_budget_is_one_for_workers_and_heads_and_lasts_over_all_heads(storage: Path, first_head: Head) -> None:
    running = Running(storage, "run", max_infrastructure_failures=2)
    wait_until(running.is_waiting, "every rank waits", running.events)
    os.kill(running.rows("begins", rank=1)[-1][1], signal.SIGKILL)
    wait_until(lambda: running.is_waiting(attempts=2), "the second attempt waits", running.events)
    first_head.kill()
    wait_until(lambda: running.is_waiting(attempts=3), "the third attempt waits", running.events)
    Head().kill()
    with pytest.raises(ConnectionLostError) as caught:
        running.thread.finish()
    assert str(caught.value).startswith("the head was lost and was started again once too often: ")
    assert "`max_infrastructure_failures=2` is used up" in str(caught.value)
    assert "once too often" in (running.run / "error.txt").read_text()
    first_head.is_gone()
    # The head that told so is there for the next run, which resumes with a new budget.
    running.go.touch()
    again = Running(storage, "run", max_infrastructure_failures=0)
    assert again.thread.finish().return_value == WAITS_AT


def test_it_is_said_on_the_console(storage: Path, first_head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(storage, "run")
    wait_until(running.is_waiting, "every rank waits", running.events)
    first_head.kill()
    running.go.touch()
    running.recovered(first=WAITS_AT)
    output = capsys.readouterr().out
    assert "carril: warning: the head has gone and is started again: " in output
    assert "carril: restart 1: the head was lost and was started again (failure 1 of 3 by " in output


def test_a_head_that_panics_ends_with_101_and_is_replaced(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """PANIC-1: by hand, because only its parent learns its exit code."""
    faulty = {**os.environ, "CARRIL_JOURNAL_FAULT": "panic:1:WorkerReady"}
    command = [CARRIL, "private-head", f"--driver={os.getpid()}"]
    head = subprocess.Popen(command, env=faulty, stdout=subprocess.PIPE, text=True)
    assert head.stdout is not None
    monkeypatch.setenv("CARRIL_HEAD", head.stdout.readline().removeprefix("ready ").strip())
    carril.init()
    monkeypatch.delenv("CARRIL_HEAD")  # the one that takes its place is this driver's own
    old = Head()
    running = Running(storage, "run", waits_at=None)
    result = running.thread.finish()
    assert head.wait(timeout=15) == 101
    head.stdout.close()
    (restart,) = result.restarts
    assert restart["code"] == "head-lost"
    assert restart["reason"].startswith("the head panicked and was started again: crates/store/src/faults.rs:")
    assert "a fault on purpose, at `WorkerReady: rank" in restart["reason"]
    out, err = capfd.readouterr()
    assert "carril: the head panicked in thread " in err
    assert "carril: warning: the head has gone and is started again: the head panicked at crates/store" in out
    old.is_gone()


def test_the_same_panic_three_times_ends_the_run_with_that_cause(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARRIL_JOURNAL_FAULT", "panic:1:WorkerReady")
    carril.init(num_cpus=8)
    running = Running(storage, "run", waits_at=None, max_infrastructure_failures=-1)
    with pytest.raises(InternalError) as caught:
        running.thread.finish()
    assert str(caught.value).startswith("the head panicked 3 times in the same way: crates/store/src/faults.rs:")
    assert "hint: this is a bug in carril" in str(caught.value)
    assert "3 times in the same way" in (running.run / "error.txt").read_text()
    # The head that told so lives.
    client = driver.current_client()
    assert client is not None and client.nodes()


def test_a_journal_that_cannot_be_written_for_a_moment_loses_nothing(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CARRIL_JOURNAL_FAULT", "enospc:2:AttemptBegun")
    carril.init(num_cpus=8)
    running = Running(storage, "run", waits_at=None)
    assert running.thread.finish().restarts == []
    output = capsys.readouterr().out
    assert output.count("the journal cannot be written, and is retried for 30 s: ") == 1
    assert "no space left" in output and "the journal is written again" in output
    events = running.events()
    assert events[:3] == ["Opened", "Placed", "AttemptBegun"], events
    assert sum(event.startswith("WorkerReturned") for event in events) == 2


def test_after_shutdown_no_new_head_is_started(storage: Path, first_head: Head) -> None:
    running = Running(storage, "run")
    wait_until(running.is_waiting, "every rank waits", running.events)
    carril.shutdown()
    with pytest.raises(carril.exceptions.CarrilError):
        running.thread.finish()
    assert driver.current_client() is None


SCRIPT = """
    import os, sys, time
    {imports}

    def loop(config):
        latest = train.get_checkpoint()
        first = 0
        if latest is not None:
            with latest.as_directory() as directory, open(os.path.join(directory, "step")) as file:
                first = int(file.read()) + 1
        rank = train.get_context().get_world_rank()
        for step in range(first, 5):
            if step == 2 and not os.path.exists("go"):
                while not os.path.exists(os.path.join(config["run"], "checkpoint_000001", ".manifest.json")):
                    time.sleep(0.005)
                print(f"waits at 2 after {{first}} on rank {{rank}}", flush=True)
            while step == 2 and not os.path.exists("go"):
                time.sleep(0.005)
            os.makedirs(f"mine-{{rank}}", exist_ok=True)
            with open(f"mine-{{rank}}/step", "w") as file:
                file.write(str(step))
            train.report({{"step": step}}, checkpoint=train.Checkpoint.from_directory(f"mine-{{rank}}") if rank == 0 else None)
            if rank == 0:
                with open("made", "a") as file:
                    file.write(f"{{step}}\\n")
            train.collective.barrier()
        return first

    if __name__ == "__main__":
        result = Trainer(
            loop,
            train_loop_config={{"run": os.path.abspath("runs/run")}},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="run", storage_path="runs", failure_config=train.FailureConfig(max_failures=1)),
        ).fit()
        print(f"\\nstep={{result.metrics['step']}}", flush=True)
"""
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "native": ("from carril import train; from carril.train import DataParallelTrainer as Trainer", ()),
    "as-ray": (
        "from ray import train; import ray.train.collective; "
        "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer as Trainer",
        AS_RAY,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_script_survives_its_head(scripts: Scripts, way: str) -> None:
    imports, before = WAYS[way]
    script = scripts.start(SCRIPT.format(imports=imports), before=before)
    script.wait_for("waits at 2 after 0", times=2)
    old = script.head().pid
    os.kill(old, signal.SIGKILL)
    script.wait_for("waits at 2 after 2", times=2)
    assert script.head().pid != old
    (scripts.directory / "go").touch()
    assert script.finish() == 0, script.output
    assert values(script.output)["step"] == "4"
    assert (scripts.directory / "made").read_text().split() == ["0", "1", "2", "3", "4"]
    script.is_alone()


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_driver_takes_all_with_it_and_the_same_script_resumes(scripts: Scripts, way: str) -> None:
    imports, before = WAYS[way]
    script = scripts.start(SCRIPT.format(imports=imports), before=before)
    script.wait_for("waits at 2 after 0", times=2)
    (python,) = [found for found in script.related("script.py") if "as-ray" not in found.command]
    os.kill(python.pid, signal.SIGKILL)
    assert script.finish() != 0
    script.is_alone()
    wait_for_script(lambda: not scripts.heads_directories(), "the head's directory goes", scripts.heads_directories)
    (scripts.directory / "go").touch()
    output = scripts.run(SCRIPT.format(imports=imports), before=before)
    assert values(output)["step"] == "4"
    assert (scripts.directory / "made").read_text().split() == ["0", "1", "2", "3", "4"]
