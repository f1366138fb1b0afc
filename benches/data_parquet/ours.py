"""Parquet to batches of numpy arrays."""

import sys
from pathlib import Path

from carril import data

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def one_pass() -> int:
    return sum(len(batch["label"]) for batch in data.read_parquet(paths()).iter_batches(batch_size=BATCH))


tell(**rate(one_pass))
