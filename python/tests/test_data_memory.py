"""A hard budget of memory: a slow consumer holds the reader back, and nothing goes to disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

IS_LONG = bool(os.environ.get("CARRIL_LONG"))
BUDGET = (128 if IS_LONG else 24) << 20
COLUMNS = 32
# Large enough that what is read ahead is bounded by the budget, and not by the number of row groups.
ROWS_OF_A_GROUP = BUDGET // (10 * 4 * (COLUMNS + 1))

# In a process of its own: what it takes in memory is what it reads, and not what other tests have left.
CHILD = """
import json, sys
from carril import data
from carril.data import DataContext, ExecutionOptions, ExecutionResources

path, budget, order = sys.argv[1], int(sys.argv[2]), sys.argv[3]
limits = ExecutionResources(object_store_memory=budget)
DataContext.get_current().execution_options = ExecutionOptions(resource_limits=limits)

def own_memory():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) << 10

def written():
    lines = open("/proc/self/io").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))

dataset = data.read_parquet(path)
if order == "shuffled":
    dataset = dataset.random_shuffle(seed=0)
if order == "limited":
    dataset = dataset.limit(10**9).rename_columns({"x0": "first"})
# What every pass needs is there before it is measured: threads, numpy. Nothing of the files: what a first pass leaves counts.
data.range(10_000).take_batch(1)
base, wrote, peak, full, rows, most = own_memory(), written(), 0, 0, 0, 0
for number, batch in enumerate(dataset.iter_batches(batch_size=4096)):
    stream = dataset._last.native
    # Slower than any reader: the next batch is wanted when nothing more is read.
    held = -1
    while held != stream.bytes_in_memory:
        held = stream.bytes_in_memory
        if number % 8 == 0:
            peak = max(peak, own_memory() - base)
    rows += len(batch["label"])
    most = max(most, held)
    full += held > budget // 2
print(json.dumps({"peak": peak, "full": full, "rows": rows, "most": most, "written": written() - wrote}))
"""


@pytest.fixture(scope="module", params=["noise", "few values"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty times the budget in memory. On the disk, few values are a dictionary, and many times smaller."""
    import numpy
    import pyarrow
    from pyarrow import parquet

    directory = tmp_path_factory.mktemp("twenty")
    rows = 20 * BUDGET // (4 * (COLUMNS + 1))
    number, at = 0, 0
    noise = numpy.random.default_rng(0).random((4 * ROWS_OF_A_GROUP, COLUMNS), numpy.float32)
    if request.param == "few values":
        noise = numpy.floor(noise * 16)
    while at < rows:
        columns = {f"x{column}": noise[:, column] for column in range(COLUMNS)}
        columns["label"] = numpy.arange(at, at + len(noise), dtype="i4")
        parquet.write_table(
            pyarrow.table(columns),
            directory / f"{number:04}.parquet",
            row_group_size=ROWS_OF_A_GROUP,
            compression="none",
        )
        number, at = number + 1, at + len(noise)
    return directory


@pytest.mark.parametrize("order", ["plain", "shuffled", "limited"])
def test_a_slow_consumer_holds_the_reader_within_its_budget(files: Path, order: str) -> None:
    child = [sys.executable, "-c", CHILD, str(files), str(BUDGET), order]
    done = subprocess.run(child, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] * 4 * (COLUMNS + 1) >= 20 * BUDGET
    # The reader was faster all the time: it had read as much as it may.
    assert told["full"] > 10, told
    assert told["most"] <= BUDGET, told
    # Beside what is read: compressed pages, what Python holds, and what the allocator has not given back yet.
    assert told["peak"] <= BUDGET + (12 << 20), told
    assert told["written"] < 1 << 16, told
