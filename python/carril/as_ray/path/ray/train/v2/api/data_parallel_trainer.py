"""`ray.train.v2.api.data_parallel_trainer`."""

from carril.train import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
