"""A rank that the kernel ends for its memory is told from one that somebody killed: in a real cgroup with a real limit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = """
import os, pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from carril.train import DataParallelTrainer, RunConfig, ScalingConfig, get_context, report
from carril.train.collective import barrier
from carril.train import WorkerGroupError

def loop():
    report({"step": 1})
    if get_context().get_world_rank() == 1:
        held = bytearray(1 << 30)
    barrier()

try:
    DataParallelTrainer(
        loop, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=sys.argv[2], name="hungry")
    ).fit()
except WorkerGroupError as error:
    print("CODE", error.code)
    print("ERROR", str(error).splitlines()[0])
"""


def _hierarchy() -> Path:
    """Where a cgroup with a limit of memory can be made: the first or the second generation."""
    first = Path("/sys/fs/cgroup/memory")
    return first if first.is_dir() else Path("/sys/fs/cgroup")


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    cgroup = _hierarchy() / f"carril-test-{os.getpid()}"
    cgroup.mkdir()
    limit = "memory.limit_in_bytes" if (cgroup / "memory.limit_in_bytes").exists() else "memory.max"
    (cgroup / limit).write_text(str(400 << 20))
    yield cgroup
    cgroup.rmdir()


def test_memory_that_ran_out_is_named_with_the_limit_and_the_rank(small_cgroup: Path, tmp_path: Path) -> None:
    script = tmp_path / "hungry.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(small_cgroup), str(tmp_path / "results")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CODE out-of-memory" in done.stdout, done.stdout + done.stderr
    headline = next(line for line in done.stdout.splitlines() if line.startswith("ERROR"))
    assert "rank 1 failed: the worker process ran out of memory" in headline
    assert "a limit of 0.39 GiB" in headline and "oom_kill count 1" in headline
    assert "out-of-memory" in (tmp_path / "results" / "hungry" / "error.json").read_text()
