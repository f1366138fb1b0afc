"""What pyarrow's own reader of CSV takes for the same files: into tables, or (BENCH_NUMPY) in the same batches of arrays."""

import os
import sys
from pathlib import Path

from pyarrow.csv import read_csv

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def tables() -> int:
    return sum(read_csv(path).num_rows for path in paths())


def in_batches() -> int:
    rows = 0
    for path in paths():
        for batch in read_csv(path).to_batches(max_chunksize=BATCH):
            arrays = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
            rows += len(arrays["f0"])
    return rows


tell(**rate(in_batches if "BENCH_NUMPY" in os.environ else tables))
