"""Batches of numpy arrays with Hugging Face's datasets, out of the Arrow files that it makes of Parquet once and for all.

Making them is not counted. They are kept beside the Parquet files. Its own format "numpy" goes through a list of rows; Arrow's tables
are what it gives fastest.
"""

import os
import sys
from pathlib import Path

import datasets

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell

CACHE = str(Path(os.environ["BENCH_DATA"]).parent / "huggingface")
datasets.disable_progress_bars()


def one_pass() -> int:
    rows = 0
    for table in datasets.Dataset.from_parquet(paths(), cache_dir=CACHE).with_format("arrow").iter(batch_size=BATCH):
        batch = {name: table.column(name).to_numpy() for name in table.column_names}
        rows += len(batch["label"])
    return rows


tell(**rate(one_pass))
