"""CSV to batches of numpy arrays: floats, integers and strings."""

import sys
from pathlib import Path

from carril import data

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def one_pass() -> int:
    return sum(len(batch["f0"]) for batch in data.read_csv(paths()).iter_batches(batch_size=BATCH))


tell(**rate(one_pass))
