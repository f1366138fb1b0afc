"""CSV to batches of numpy arrays: floats, integers and strings."""

import sys
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def one_pass() -> int:
    return sum(len(batch["f0"]) for batch in ray.data.read_csv(paths()).iter_batches(batch_size=BATCH))


ray.init(num_cpus=2, include_dashboard=False)
ray.data.DataContext.get_current().enable_progress_bars = False
tell(**rate(one_pass))
