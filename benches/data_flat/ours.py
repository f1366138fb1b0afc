"""Shuffled batches of so many rows, within a budget of 64 MB: rows a second, and what the process took of memory at most."""

import resource
import sys
from pathlib import Path

from carril import data

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell

data.DataContext.get_current().execution_options.resource_limits.object_store_memory = 64 << 20


def one_pass() -> int:
    shuffled = data.read_parquet(paths()).random_shuffle()
    return sum(len(batch["label"]) for batch in shuffled.iter_batches(batch_size=BATCH))


measured = rate(one_pass)
tell(**measured, peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
