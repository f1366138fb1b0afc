"""A rank dies, of whatever and wherever: the run goes on from its newest checkpoint and ends as if nothing had been.

The usual size is a dozen cells of the matrix and ten random kills; with CARRIL_LONG it is every cell and a hundred
kills. Memory that runs out is in test_memory.py, which has the cgroup for it.
"""

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground, committed_steps, saves
from conftest import processes, wait_until
from recovery_runs import KINDS, PLACES, Cell, Learning, journal_of, told, weights_of
from runs import fit

from carril._internal import driver
from carril.train import FailureConfig

pytestmark = pytest.mark.usefixtures("head", "torch_is_imported")

LONG = bool(os.environ.get("CARRIL_LONG"))
ALL_CELLS = list(itertools.product([kind for kind in KINDS if kind != "memory"], PLACES, (0, 1)))
# Every kind in three places, every place and both ranks among them.
SOME_CELLS = [
    ("exception", "user code", 0),
    ("exception", "all_reduce", 1),
    ("exception", "save", 1),
    ("exit", "user code", 1),
    ("exit", "barrier", 1),
    ("exit", "report", 0),
    ("SIGKILL", "all_reduce", 0),
    ("SIGKILL", "report", 1),
    ("SIGKILL", "save", 0),
    ("SIGSEGV", "user code", 0),
    ("SIGSEGV", "barrier", 0),
    ("SIGSEGV", "save", 1),
]


@pytest.fixture(scope="module")
def torch_is_imported(head: None) -> None:
    """In the driver, and so in the process that workers are forked from."""
    import torch  # noqa: F401


@pytest.fixture(scope="module")
def undisturbed(torch_is_imported: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights at the end of a run that nothing happened to."""
    result = Learning(tmp_path_factory.mktemp("undisturbed")).trainer().fit()
    assert result.restarts == [] and weights_of(result) == result.return_value
    return str(result.return_value)


@pytest.mark.parametrize("cell", ALL_CELLS if LONG else SOME_CELLS, ids=lambda cell: "-".join(map(str, cell)))
def test_a_rank_dies_and_the_run_ends_as_if_nothing_had_been(tmp_path: Path, undisturbed: str, cell: Cell) -> None:
    learning = Learning(tmp_path)
    result = learning.trainer(cell, failure_config=FailureConfig(max_failures=1)).fit()
    learning.check_recovered(told(result), cell, undisturbed)


def test_random_ranks_are_killed_at_random_steps_and_the_weights_are_the_same_to_the_last_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kills = 100 if LONG else 10
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    # Enough steps to be alive for the last of them: each comes at most three steps after the last one.
    # Two ranks: of three numbers DDP makes another sum after its first step than in it.
    steps, workers = 5 * kills, 2
    expected = Learning(tmp_path_factory.mktemp("calm"), steps, workers).trainer(verbose=0).fit()
    learning = Learning(tmp_path, steps, workers)
    running = InBackground(learning.trainer(failure_config=FailureConfig(max_infrastructure_failures=kills)).fit)
    for attempt in range(kills):
        wait_until(
            lambda attempt=attempt: all(len(learning.begins(rank)) > attempt for rank in range(workers)),
            f"attempt {attempt} has begun on every rank",
            lambda: ([learning.begins(rank)[-2:] for rank in range(workers)], running.error),
        )
        rank = chance.randrange(workers)
        first, pid = learning.begins(rank)[attempt]
        goal = first + chance.randrange(3)
        wait_until(
            lambda rank=rank, goal=goal: goal == 0 or goal - 1 in learning.made(rank),
            f"rank {rank} is at step {goal}",
            lambda: (learning.made(0)[-3:], running.error),
        )
        os.kill(pid, 9)
    result = running.finish()
    assert [restart["attempt"] for restart in result.restarts] == list(range(1, kills + 1))
    assert {restart["code"] for restart in result.restarts} == {"worker-killed"}
    assert result.return_value == weights_of(result) == expected.return_value
    assert [row["training_iteration"] for row in result.rank_metrics(0)][-1] == steps
    assert learning.kept() == list(range(steps))
    assert learning.left() == []


def zygotes() -> set[int]:
    client = driver.current_client()
    assert client is not None
    found = [process for process in processes() if "carril._internal.zygote" in process.command]
    return {process.pid for process in found if process.parent == client.head_pid}


def test_a_restart_forks_from_the_process_that_has_the_imports_already(tmp_path: Path, undisturbed: str) -> None:
    before = zygotes()
    learning = Learning(tmp_path)
    learning.trainer(("exit", "user code", 1), failure_config=FailureConfig(max_failures=1)).fit()
    assert len(before) == 1 and zygotes() == before
    starts = [
        record["reason"] for record in journal_of(tmp_path / "run") if record["event"].startswith("WorkerStarted")
    ]
    assert starts == ["forked"] * 4, "two attempts of two ranks"


@pytest.mark.parametrize("damage", ["a byte", "a file", "the manifest", "all of them"])
def test_the_next_attempt_begins_from_the_newest_checkpoint_that_is_whole(
    storage: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = saves()

    def function(config: dict[str, Any]) -> Any:
        import os
        import pathlib

        from carril import train

        first_time = not os.path.exists(config["witness"])
        if not first_time:
            return whole({"steps": config["steps"]})
        whole({"steps": 3})
        train.collective.barrier()
        kept = sorted(one.checkpoint.path for one in train.get_all_reported_checkpoints())
        if train.get_context().get_world_rank() == 0:
            open(config["witness"], "x").close()
            for path in kept if config["damage"] == "all of them" else kept[-1:]:
                file = pathlib.Path(path, ".manifest.json" if config["damage"] == "the manifest" else "shards/1")
                if config["damage"] == "a file":
                    file.unlink()
                else:
                    content = bytearray(file.read_bytes())
                    content[len(content) // 2] ^= 1
                    file.write_bytes(content)
            os._exit(1)
        train.collective.barrier()

    witness = storage / "witness"
    config = {"witness": str(witness), "damage": damage, "steps": 5}
    result = fit(function, storage, config=config, name="run", failure_config=FailureConfig(max_failures=1))
    assert witness.exists() and len(result.restarts) == 1
    lost = 3 if damage == "all of them" else 1
    assert result.return_value == 3 - lost, "the first step of the second attempt"
    aside = sorted(path.name for path in (storage / "run").glob("*.damaged"))
    assert aside == [f"checkpoint_{number:06d}.damaged" for number in range(3 - lost, 3)]
    warnings = [line for line in capsys.readouterr().out.splitlines() if "is damaged and was set aside" in line]
    assert len(warnings) == lost and all(name.removesuffix(".damaged") in "".join(warnings) for name in aside)
    assert committed_steps(storage / "run") == list(range(5))
