"""Parquet to batches of numpy arrays with torch's DataLoader: two processes, each of which reads its files with pyarrow."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import pyarrow.parquet
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, rate, tell


class Files(IterableDataset):
    def __iter__(self) -> Iterator[dict[str, numpy.ndarray]]:
        worker = get_worker_info()
        for path in paths()[worker.id :: worker.num_workers]:
            for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=BATCH, use_threads=False):
                yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}


def as_it_is(batch: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Not as tensors, which is the default: each would take shared memory and a descriptor of its own."""
    return batch


def one_pass() -> int:
    batches = DataLoader(Files(), batch_size=None, num_workers=2, collate_fn=as_it_is)
    return sum(len(batch["label"]) for batch in batches)


tell(**rate(one_pass))
