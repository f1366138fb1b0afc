"""Parquet to batches of numpy arrays with Hugging Face's datasets, streamed: nothing is converted beforehand."""

import sys
from pathlib import Path

import datasets

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


def one_pass() -> int:
    stream = datasets.load_dataset("parquet", data_files=paths(), split="train", streaming=True)
    return sum(len(batch["label"]) for batch in stream.with_format("numpy").iter(batch_size=BATCH))


tell(**rate(one_pass))
