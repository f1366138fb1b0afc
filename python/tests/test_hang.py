"""A rank that makes no progress: it is named, with the place where it is and where the others wait for it.

Every way to hang is tried in a run of its own, all of them at once, since each takes as long as `hang_timeout`.
"""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runs import NO_RESTART
from snapshots import check

from carril.exceptions import HangError, TrainingFailedError
from carril.train import DataParallelTrainer, RunConfig, ScalingConfig

PATIENCE_S = 2.0
# Of what the run itself takes, the hang and the gathering of stacks: the bound that is promised.
AT_MOST_S = 10.0


def in_python_with_the_gil_held(config: dict[str, Any]) -> None:
    import re

    from carril import train

    if train.get_context().get_world_rank() == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    train.collective.barrier()


def in_a_call_of_c(config: dict[str, Any]) -> None:
    import time

    from carril import train

    if train.get_context().get_world_rank() == 0:
        time.sleep(1000)
    train.collective.barrier()


def in_a_lock(config: dict[str, Any]) -> None:
    import threading

    from carril import train

    lock = threading.Lock()
    lock.acquire()
    if train.get_context().get_world_rank() == 2:
        lock.acquire()
    train.collective.broadcast_from_rank_zero(1)


def in_a_loop(config: dict[str, Any]) -> None:
    from carril import train

    rank = train.get_context().get_world_rank()
    train.report({"step": 1})
    while rank == 1:
        pass
    train.collective.barrier()


def in_a_child_thread(config: dict[str, Any]) -> None:
    """Its main thread waits for one that does not end; the stacks of both are kept."""
    import threading
    import time

    from carril import train

    if train.get_context().get_world_rank() == 1:
        thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
        thread.start()
        thread.join()
    train.collective.barrier()


def stopped_by_a_signal(config: dict[str, Any]) -> None:
    import os
    import signal

    from carril import train

    # A process that is stopped at once could not even say that it has begun.
    train.collective.barrier()
    if train.get_context().get_world_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    train.collective.barrier()


def every_rank_on_its_own(config: dict[str, Any]) -> None:
    import time

    from carril import train

    train.collective.barrier()  # a rank that began later would stand still for less
    time.sleep(1000)


def in_a_gloo_collective(config: dict[str, Any]) -> None:
    import time

    import torch
    import torch.distributed as dist

    if dist.get_rank() == 1:
        time.sleep(1000)
    dist.all_reduce(torch.ones(3))


def in_two_different_collectives(config: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    from carril import train

    if dist.get_rank() == 0:
        train.collective.barrier()
    dist.all_reduce(torch.ones(3))


@dataclass
class Hung:
    """What became of one run."""

    seconds: float
    error: TrainingFailedError
    directory: Path

    @property
    def sentence(self) -> str:
        """The headline, with the lines of this file as `LINE`."""
        return re.sub(r"test_hang\.py:\d+", "test_hang.py:LINE", str(self.error).splitlines()[0])


WORKERS: dict[Callable[..., None], int] = {in_a_lock: 3}
PLAIN = (
    in_python_with_the_gil_held,
    in_a_call_of_c,
    in_a_lock,
    in_a_loop,
    in_a_child_thread,
    stopped_by_a_signal,
    every_rank_on_its_own,
)
TORCH = (in_a_gloo_collective, in_two_different_collectives)


@pytest.fixture(scope="module", name="hung")
def hung_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Hung]]:
    """The endings of all runs, by the name of the function."""
    import carril
    from carril.train.torch import TorchTrainer

    storage = tmp_path_factory.mktemp("hung")

    def run(function: Callable[..., None]) -> tuple[str, Hung]:
        kind = TorchTrainer if function in TORCH else DataParallelTrainer
        name = function.__name__
        trainer = kind(
            _by_value(function),
            train_loop_config={},
            scaling_config=ScalingConfig(num_workers=WORKERS.get(function, 2)),
            run_config=RunConfig(
                name=name, storage_path=storage, verbose=0, hang_timeout=PATIENCE_S, failure_config=NO_RESTART
            ),
        )
        began = time.monotonic()
        try:
            trainer.fit()
        except TrainingFailedError as error:
            return name, Hung(time.monotonic() - began, error, storage / name)
        raise AssertionError(f"`{name}` did not fail")

    carril.init(num_cpus=32)
    try:
        # Those with torch come after the others: importing it would take the machine from them.
        with ThreadPoolExecutor(len(PLAIN)) as pool:
            results = dict(pool.map(run, PLAIN)) | dict(pool.map(run, TORCH))
        yield results
    finally:
        carril.shutdown()


def _by_value(function: Callable[..., None]) -> Callable[..., None]:
    """So that no worker imports this module: a function without a module travels whole."""
    import types

    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "in_python_with_the_gil_held",
            "rank 1 is missing: rank 0 waits in `barrier` at test_hang.py:LINE; "
            "rank 1 is in `match` at test_hang.py:LINE",
        ),
        (
            "in_a_call_of_c",
            "rank 0 is missing: rank 1 waits in `barrier` at test_hang.py:LINE; "
            "rank 0 is in `in_a_call_of_c` at test_hang.py:LINE",
        ),
        (
            "in_a_lock",
            "rank 2 is missing: ranks 0 and 1 wait in `broadcast_from_rank_zero` at test_hang.py:LINE; "
            "rank 2 is in `in_a_lock` at test_hang.py:LINE",
        ),
        (
            "in_a_loop",
            "rank 1 is missing: rank 0 waits in `barrier` at test_hang.py:LINE; "
            "rank 1 is in `in_a_loop` at test_hang.py:LINE",
        ),
        (
            "stopped_by_a_signal",
            "rank 1 is missing: rank 0 waits in `barrier` at test_hang.py:LINE; rank 1 is stopped by a signal (SIGSTOP)",
        ),
        ("every_rank_on_its_own", "ranks 0 and 1 are in `every_rank_on_its_own` at test_hang.py:LINE"),
        (
            "in_a_gloo_collective",
            "rank 1 is missing: rank 0 waits in `all_reduce` at test_hang.py:LINE; "
            "rank 1 is in `in_a_gloo_collective` at test_hang.py:LINE",
        ),
        (
            "in_two_different_collectives",
            "every rank waits: rank 0 waits in `barrier` at test_hang.py:LINE, "
            "rank 1 waits in `all_reduce` at test_hang.py:LINE",
        ),
    ],
)
def test_one_line_names_the_missing_rank_and_where_the_others_wait(
    hung: dict[str, Hung], name: str, sentence: str
) -> None:
    error = hung[name].error
    assert hung[name].sentence.endswith(f"no progress for 2 s: {sentence}")
    if name == "stopped_by_a_signal":
        # Somebody outside did that: the run may have failures of machines to spare.
        assert (error.code, error.origin) == ("worker-stopped", "infrastructure")
    else:
        assert hung[name].sentence.startswith("no progress for 2 s: ") and isinstance(error, HangError)
        assert (error.code, error.origin) == ("hang", "user")


@pytest.mark.parametrize("name", [function.__name__ for function in PLAIN])
def test_it_is_told_within_ten_seconds(hung: dict[str, Hung], name: str) -> None:
    assert PATIENCE_S <= hung[name].seconds < AT_MOST_S


def test_the_stacks_of_all_threads_of_every_rank_are_kept(hung: dict[str, Hung]) -> None:
    text = (hung["in_a_child_thread"].directory / "stacks.txt").read_text()
    first, *ranks = re.split(r"^rank \d \(.*\)$", text, flags=re.MULTILINE)
    assert first.startswith("rank 1 is missing") and len(ranks) == 2
    assert "in barrier" in ranks[0]
    assert ranks[1].count("(most recent call first)") == 2 and 'threading.py"' in ranks[1] and "in join" in ranks[1]


def test_the_files_of_the_error_say_the_same(hung: dict[str, Hung]) -> None:
    import json

    found = hung["in_a_lock"]
    headline = str(found.error).splitlines()[0]
    assert (found.directory / "error.txt").read_text().splitlines()[0] == headline
    record = json.loads((found.directory / "error.json").read_text())
    assert record["headline"] == headline and record["failure"]["code"] == "hang"
    check("hang_error", re.sub(r"test_hang\.py:\d+", "test_hang.py:LINE", str(found.error)))
