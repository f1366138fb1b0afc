"""`ray.air.constants`: the constants that scripts use."""

from carril.train import TRAIN_DATASET_KEY

EVALUATION_DATASET_KEY = "evaluation"
MODEL_KEY = "model"
PREPROCESSOR_KEY = "_preprocessor"
TIMESTAMP = "timestamp"
TIME_THIS_ITER_S = "time_this_iter_s"
TRAINING_ITERATION = "training_iteration"

__all__ = [
    "EVALUATION_DATASET_KEY",
    "MODEL_KEY",
    "PREPROCESSOR_KEY",
    "TIMESTAMP",
    "TIME_THIS_ITER_S",
    "TRAINING_ITERATION",
    "TRAIN_DATASET_KEY",
]
