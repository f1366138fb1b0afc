"""`ray.train.data_parallel_trainer`: where scripts of the older generation import the plain trainer from."""

from carril.train import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
