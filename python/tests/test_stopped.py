"""A rank whose process is stopped by a signal: it is shown within seconds, and is no failure until the user's time is over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground
from conftest import wait_until
from recovery_runs import journal_of
from runs import trainer

from carril.train import ControllerError, FailureConfig

pytestmark = pytest.mark.usefixtures("head")
CARRIL = str(Path(sys.executable).parent / "carril")


def stops() -> Callable[[dict[str, Any]], int]:
    """Makes a checkpoint, then rank 1 stops itself, unless it finds that it has done so before."""

    def function(config: dict[str, Any]) -> int:
        import os
        import signal

        from carril import train

        rank = train.get_context().get_world_rank()
        latest = train.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        for step in range(first, 3):
            given = train.Checkpoint.from_dict({"step": step}) if rank == 0 else None
            train.report({"step": step}, checkpoint=given)
            train.collective.barrier()
            if step == 1 and rank == 1 and not os.path.exists(config["witness"]):
                with open(config["witness"], "x") as file:
                    file.write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)
        train.collective.barrier()
        return first

    return function


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def start(storage: Path, **run: Any) -> tuple[InBackground, int]:
    """A run, and the process of rank 1 when it has stopped."""
    witness = storage / "witness"
    running = InBackground(trainer(stops(), storage, config={"witness": str(witness)}, name="run", **run).fit)
    wait_until(lambda: witness.exists() and witness.read_text(), "rank 1 stops itself", lambda: running.error)
    pid = int(witness.read_text())
    wait_until(lambda: state_of(pid) == "T", "rank 1 is stopped")
    return running, pid


def told(storage: Path) -> list[str]:
    return [record["event"] for record in journal_of(storage / "run") if record["event"].startswith("WorkerHalted")]


def test_it_is_shown_within_seconds_and_sigcont_costs_nothing(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running, pid = start(storage)
    began = time.monotonic()
    try:
        wait_until(lambda: told(storage), "the stop is in the journal")
        assert time.monotonic() - began < 5
        explained = subprocess.run(
            [CARRIL, "explain", str(storage / "run")], capture_output=True, text=True, check=True
        )
        assert "the process of rank 1 was stopped by a signal; SIGCONT lets it go on" in explained.stdout
        assert not running.is_over
    finally:
        os.kill(pid, signal.SIGCONT)
    result = running.finish()
    assert result.restarts == [] and result.return_value == 0
    assert [row["step"] for row in result.rank_metrics(1)] == [0, 1, 2]
    assert told(storage) == ["WorkerHalted: rank 1, stopped", "WorkerHalted: rank 1, goes on"]
    output = capsys.readouterr().out
    assert "warning: the process of rank 1 was stopped by a signal; SIGCONT lets it go on" in output
    assert "warning: the process of rank 1 goes on" in output


def test_with_hang_timeout_it_is_killed_and_the_group_restarted(storage: Path) -> None:
    running, pid = start(storage, hang_timeout=2.0)
    result = running.finish()
    (restart,) = result.restarts
    assert restart["code"] == "worker-stopped"
    assert "rank 1 is stopped by a signal (SIGSTOP)" in restart["reason"]
    assert "(failure 1 of 3 by `max_infrastructure_failures`)" in restart["reason"]
    assert result.return_value == 2, "the step after the last checkpoint"
    assert not Path(f"/proc/{pid}").exists() or state_of(pid) == "Z"


def test_sigcont_before_hang_timeout_costs_nothing(storage: Path) -> None:
    running, pid = start(storage, hang_timeout=60.0)
    wait_until(lambda: told(storage), "the stop is in the journal")
    os.kill(pid, signal.SIGCONT)
    assert running.finish().restarts == []


def test_without_failures_to_spare_it_ends_the_run(storage: Path) -> None:
    running, _ = start(storage, hang_timeout=2.0, failure_config=FailureConfig(max_infrastructure_failures=0))
    with pytest.raises(ControllerError, match=r"rank 1 is stopped by a signal \(SIGSTOP\)") as caught:
        running.finish()
    assert (caught.value.code, caught.value.origin) == ("worker-stopped", "infrastructure")
