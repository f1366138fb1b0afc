"""What pyarrow's own scan takes for the same files: bare, or (BENCH_NUMPY) in the same batches of numpy arrays."""

import os
import sys
from pathlib import Path

import pyarrow.dataset

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def bare() -> int:
    return sum(batch.num_rows for batch in pyarrow.dataset.dataset(paths()).to_batches())


def in_batches() -> int:
    rows = 0
    for batch in pyarrow.dataset.dataset(paths()).to_batches(batch_size=BATCH):
        arrays = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        rows += len(arrays["label"])
    return rows


tell(**rate(in_batches if "BENCH_NUMPY" in os.environ else bare))
