"""How many failures a run survives, whose they are, and that each is reported: on the console, in the journal, in `Result`."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401
from recovery_runs import journal_of
from runs import fit

from carril.train import FailureConfig, Result, TrainingFailedError, UserCallback, WorkerGroupError

CARRIL = str(Path(sys.executable).parent / "carril")
AS_RAY = (CARRIL, "as-ray", "--")


def fails() -> Callable[[dict[str, Any]], int]:
    """Fails in its first attempts: `ends` has how, one after the other, and `steps` after how many checkpoints each time.

    It leaves a file for each attempt below `place`, and returns the number of the attempt that came through.
    """

    def function(config: dict[str, Any]) -> int:
        import os

        from carril import train

        rank = train.get_context().get_world_rank()
        attempt = len([name for name in os.listdir(config["place"]) if name.startswith("attempt-")])
        train.collective.barrier()
        latest = train.get_checkpoint()
        step = latest.to_dict()["step"] + 1 if latest is not None else 0
        if rank == 1:
            open(os.path.join(config["place"], f"attempt-{attempt}"), "x").close()
        if attempt < len(config["ends"]):
            for _ in range(config["steps"][attempt]):
                given = train.Checkpoint.from_dict({"step": step}) if rank == 0 else None
                train.report({"step": step}, checkpoint=given)
                step += 1
            train.collective.barrier()
            if rank == 1:
                exec(config["ends"][attempt], {"os": os})
        train.collective.barrier()
        return attempt

    return function


RAISES = "raise ValueError('on purpose')"
LEAVES = "os._exit(1)"
KILLED = "os.kill(os.getpid(), 9)"


class Trial:
    """Runs of that function in one place."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.place = storage / "attempts"
        self.place.mkdir()

    def fit(self, *ends: str, steps: tuple[int, ...] | None = None, callbacks: Any = (), **budget: Any) -> Result:
        config = {"place": str(self.place), "ends": ends, "steps": steps if steps is not None else (1,) * len(ends)}
        failure = FailureConfig(**budget)
        return fit(fails(), self.storage, config=config, name="run", callbacks=list(callbacks), failure_config=failure)

    def fails(self, *ends: str, **budget: Any) -> WorkerGroupError:
        with pytest.raises(WorkerGroupError) as caught:
            self.fit(*ends, **budget)
        return caught.value

    @property
    def attempts(self) -> int:
        return len(list(self.place.iterdir()))


@pytest.fixture
def trial(storage: Path, head: None) -> Trial:
    return Trial(storage)


def test_max_failures_allows_so_many_restarts(trial: Trial) -> None:
    result = trial.fit(RAISES, LEAVES, max_failures=2)
    assert result.return_value == 2 and trial.attempts == 3
    assert [(restart["attempt"], restart["code"]) for restart in result.restarts] == [
        (1, "user-exception"),
        (2, "worker-exited"),
    ]


def test_one_more_ends_the_run_with_the_failure_itself_and_which_attempt_it_was(trial: Trial) -> None:
    error = trial.fails(RAISES, RAISES, RAISES, max_failures=2)
    assert trial.attempts == 3
    assert isinstance(error.worker_failures[1], ValueError) and str(error).startswith("rank 1 failed: ValueError")
    headline = json.loads((trial.storage / "run" / "error.json").read_text())["headline"]
    assert headline.startswith("rank 1 failed: ValueError: on purpose at ")
    assert headline.endswith("(attempt 3: `max_failures=2` is used up)")


def test_without_a_budget_the_first_failure_of_the_function_is_the_end(trial: Trial) -> None:
    error = trial.fails(RAISES)
    assert trial.attempts == 1 and error.code == "user-exception"


@pytest.mark.parametrize("how", [True, "raise"])
def test_fail_fast_ends_at_the_first_failure_of_the_function_and_not_of_the_machine(
    trial: Trial, how: bool | str
) -> None:
    error = trial.fails(KILLED, RAISES, fail_fast=how)
    assert trial.attempts == 2, "the kill was somebody else's fault"
    assert error.code == "user-exception" and isinstance(error.worker_failures[1], ValueError)


def test_a_kill_is_charged_to_the_machine_three_times_by_default(trial: Trial) -> None:
    result = trial.fit(KILLED, KILLED, KILLED)
    assert result.return_value == 3
    assert [restart["reason"].rpartition("(")[2] for restart in result.restarts] == [
        f"failure {number} of 3 by `max_infrastructure_failures`)" for number in (1, 2, 3)
    ]


def test_the_fourth_kill_ends_the_run(trial: Trial) -> None:
    error = trial.fails(KILLED, KILLED, KILLED, KILLED)
    assert trial.attempts == 4 and (error.code, error.origin) == ("worker-killed", "infrastructure")


def test_the_two_budgets_are_counted_apart(trial: Trial) -> None:
    result = trial.fit(KILLED, RAISES, KILLED, max_failures=1, max_infrastructure_failures=2)
    assert [restart["code"] for restart in result.restarts] == ["worker-killed", "user-exception", "worker-killed"]


def test_without_a_limit_a_run_goes_on_as_long_as_it_gets_further(trial: Trial) -> None:
    result = trial.fit(*([RAISES] * 6), max_failures=-1)
    assert result.return_value == 6 and len(result.restarts) == 6
    assert result.restarts[-1]["reason"].endswith("(failure 6 of any number by `max_failures`)")


def test_without_a_limit_the_same_failure_at_the_same_step_twice_is_the_end(trial: Trial) -> None:
    error = trial.fails(*([RAISES] * 6), steps=(2, 0, 0, 0, 0, 0), max_failures=-1)
    assert trial.attempts == 2 and error.code == "user-exception"
    headline = json.loads((trial.storage / "run" / "error.json").read_text())["headline"]
    assert headline.endswith("(attempt 2: the same failure came twice at the same step, after report 2)")


def test_with_a_limit_the_same_failure_at_the_same_step_is_said(
    trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    result = trial.fit(RAISES, RAISES, steps=(1, 0), max_failures=2)
    assert result.return_value == 2
    said = [
        line for line in capsys.readouterr().out.splitlines() if "the same as the last time, at the same step" in line
    ]
    assert len(said) == 1 and said[0].startswith("carril: restart 2: rank 1 failed: ValueError: on purpose at ")


def test_a_restart_is_in_the_journal_on_the_console_and_in_the_result(
    trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.time()
    result = trial.fit(RAISES, max_failures=1)
    (restart,) = result.restarts
    assert set(restart) == {"attempt", "reason", "code", "at"} and began < restart["at"] < time.time()
    assert restart["reason"].startswith("rank 1 failed: ValueError: on purpose at ")
    assert restart["reason"].endswith(" (failure 1 of 1 by `max_failures`)")
    assert f"carril: restart 1: {restart['reason']}\n" in capsys.readouterr().out
    (told,) = [record for record in journal_of(trial.storage / "run") if record["event"] == "Restarted"]
    assert told["reason"] == restart["reason"] and told["at"] == pytest.approx(restart["at"], abs=0.1)
    explained = subprocess.run([CARRIL, "explain", str(result.path)], capture_output=True, text=True, check=True).stdout
    assert restart["reason"] in explained
    assert "resumed after report 1 from checkpoint_000000" in explained and "StartGroup" not in explained
    everything = subprocess.run(
        [CARRIL, "explain", str(result.path), "--all"], capture_output=True, text=True, check=True
    )
    assert "StartGroup: attempt 2, after report 1" in everything.stdout


def test_callbacks_hear_of_every_failure_and_of_every_start(trial: Trial) -> None:
    heard: list[str] = []

    class Listens(UserCallback):
        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            heard.extend(f"{rank}: {type(error).__name__}" for rank, error in worker_exceptions.items())

        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            heard.append(f"report {metrics[0]['step']}")

    trial.fit(RAISES, RAISES, max_failures=2, callbacks=[Listens()])
    assert heard == ["report 0", "1: ValueError", "report 1", "1: ValueError"]


def test_a_later_fit_of_the_same_name_goes_on_with_a_new_budget(trial: Trial) -> None:
    trial.fails(RAISES, RAISES, max_failures=1)
    assert trial.attempts == 2
    result = trial.fit("", "", RAISES, steps=(0, 0, 1), max_failures=1)
    assert result.return_value == 3 and len(result.restarts) == 1, "those of the first fit() are paid for"
    assert [row["step"] for row in result.rank_metrics(0)] == [0, 1, 2]


COUNTS = """
    import os, sys
    import ray.train
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop(config):
        names = os.listdir(config["place"])
        attempt = len(names)
        open(os.path.join(config["place"], str(attempt)), "x").close()
        for step in range(attempt + 1):
            ray.train.report({"step": step})
        if attempt < config["kills"]:
            os.kill(os.getpid(), 9)

    os.mkdir("place")
    trainer = DataParallelTrainer(
        loop,
        train_loop_config={"place": os.path.abspath("place"), "kills": int(sys.argv[1])},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="counts", failure_config=FailureConfig(**eval(sys.argv[2]))),
    )
    try:
        trainer.fit()
        print("ended=well")
    except ray.train.TrainingFailedError as error:
        print(f"ended={error.code}")
    print(f"attempts={len(os.listdir('place'))}")
"""


@pytest.mark.parametrize(
    ("kills", "budget", "ended", "attempts"),
    [
        (1, "{}", "worker-killed", 1),
        (2, "{'max_failures': 2}", "well", 3),
        (3, "{'max_failures': 2}", "worker-killed", 3),
        (2, "{'max_infrastructure_failures': 2}", "well", 3),
    ],
)
def test_as_ray_counts_all_failures_together_unless_it_is_given_the_second_number(
    scripts: Scripts, kills: int, budget: str, ended: str, attempts: int
) -> None:
    output = scripts.run(COUNTS, str(kills), budget, before=AS_RAY)
    assert values(output) == {"ended": ended, "attempts": str(attempts)}, output


def test_a_failure_that_would_come_again_is_not_tried_again(storage: Path, head: None) -> None:
    def function(config: dict[str, Any]) -> None:
        from carril import train

        with open(config["log"], "a") as log:
            log.write("tried\n")
        if train.get_context().get_world_rank() == 0:
            train.collective.barrier()

    log = storage / "log"
    with pytest.raises(TrainingFailedError) as caught:
        fit(function, storage, config={"log": str(log)}, failure_config=FailureConfig(max_failures=5))
    assert not caught.value.retryable and log.read_text().count("tried") == 2, "once on each rank"
