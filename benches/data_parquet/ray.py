"""Parquet to batches of numpy arrays. Ray is up, and has run this once, before the clock starts."""

import sys
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def one_pass() -> int:
    return sum(len(batch["label"]) for batch in ray.data.read_parquet(paths()).iter_batches(batch_size=BATCH))


ray.init(num_cpus=2, include_dashboard=False)
ray.data.DataContext.get_current().enable_progress_bars = False
tell(**rate(one_pass))
