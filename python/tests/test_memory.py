"""A rank that the kernel ends for its memory is distinguished from one that somebody killed: in a real cgroup with a real limit.

It counts as the function's own fault, and is survived like any other. With CARRIL_LONG that is tried in each place
where a rank can be, with a model whose weights must come out the same.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recovery_runs import PLACES, Cell, Learning

LONG = bool(os.environ.get("CARRIL_LONG"))

SCRIPT = """
import os, pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from carril.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, get_context, report
from carril.train.collective import barrier
from carril.train import WorkerGroupError

def loop():
    report({"step": 1})
    if get_context().get_world_rank() == 1 and not os.path.exists(f"{sys.argv[2]}/sated"):
        if sys.argv[3] == "once":
            pathlib.Path(sys.argv[2], "sated").touch()
        held = bytearray(1 << 30)
    barrier()
    return "went on"

try:
    result = DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=sys.argv[2], name="hungry", failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print("RESULT", result.return_value, [restart["code"] for restart in result.restarts])
except WorkerGroupError as error:
    print("CODE", error.code)
    print("ERROR", str(error).splitlines()[0])
"""


def _hierarchy() -> Path:
    """Where a cgroup with a limit of memory can be made: the first or the second generation."""
    first = Path("/sys/fs/cgroup/memory")
    return first if first.is_dir() else Path("/sys/fs/cgroup")


def cgroup_of(name: str, size: int) -> Iterator[Path]:
    cgroup = _hierarchy() / f"carril-{name}-{os.getpid()}"
    cgroup.mkdir()
    limit = "memory.limit_in_bytes" if (cgroup / "memory.limit_in_bytes").exists() else "memory.max"
    (cgroup / limit).write_text(str(size))
    yield cgroup
    cgroup.rmdir()


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    yield from cgroup_of("test", 400 << 20)


def run(script: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_memory_that_ran_out_is_named_with_the_limit_and_the_rank(small_cgroup: Path, tmp_path: Path) -> None:
    script = tmp_path / "hungry.py"
    script.write_text(SCRIPT)
    output = run(script, str(small_cgroup), str(tmp_path / "results"), "always")
    assert "CODE out-of-memory" in output, output
    headline = next(line for line in output.splitlines() if line.startswith("ERROR"))
    assert "rank 1 failed: the worker process ran out of memory" in headline
    told = re.search(r"a limit of 0\.39 GiB.* oom_kill count (\d+); this process had up to (0\.\d+) GiB", headline)
    assert told is not None, headline
    assert int(told[1]) >= 2, "the budget let it try twice, and the kernel may end another one beside it"
    assert 0.3 < float(told[2]) < 0.5
    assert "out-of-memory" in (tmp_path / "results" / "hungry" / "error.json").read_text()


def test_memory_that_ran_out_once_is_survived_at_the_cost_of_the_function_s_budget(
    small_cgroup: Path, tmp_path: Path
) -> None:
    script = tmp_path / "hungry.py"
    script.write_text(SCRIPT)
    output = run(script, str(small_cgroup), str(tmp_path / "results"), "once")
    assert (tmp_path / "results" / "sated").exists()
    assert "RESULT went on ['out-of-memory']" in output
    assert "restart 1: rank 1 failed: the worker process ran out of memory" in output
    assert "(failure 1 of 1 by `max_failures`)" in output


LEARNS = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
sys.path.insert(0, sys.argv[2])
import torch
from recovery_runs import Learning, told
from carril.train import FailureConfig

if __name__ == "__main__":
    trainer = Learning(pathlib.Path(sys.argv[3])).trainer(
        json.loads(sys.argv[4]), failure_config=FailureConfig(max_failures=1)
    )
    pathlib.Path(sys.argv[3], "told").write_text(json.dumps(told(trainer.fit())))
"""

if LONG:

    @pytest.fixture
    def roomy_cgroup() -> Iterator[Path]:
        """With room for four processes that have torch, and not for one that takes all it can."""
        yield from cgroup_of("roomy", 2 << 30)

    @pytest.fixture(scope="module")
    def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        import carril

        yield str(Learning(tmp_path_factory.mktemp("undisturbed")).trainer().fit().return_value)
        carril.shutdown()

    @pytest.mark.parametrize("cell", list(itertools.product(["memory"], PLACES, (0, 1))), ids=str)
    def test_memory_runs_out_wherever_the_rank_is_and_the_run_ends_as_if_nothing_had_been(
        tmp_path: Path, roomy_cgroup: Path, cell: Cell, undisturbed: str
    ) -> None:
        script, place = tmp_path / "learns.py", tmp_path / "place"
        script.write_text(LEARNS)
        run(script, str(roomy_cgroup), str(Path(__file__).parent), str(place), json.dumps(cell))
        learning = Learning(place)
        learning.check_recovered(json.loads((place / "told").read_text()), cell, undisturbed)
