"""`ray.train.constants`: the constants that scripts use."""

from carril.train import TRAIN_DATASET_KEY

EVALUATION_DATASET_KEY = "evaluation"
MODEL_KEY = "model"

__all__ = ["EVALUATION_DATASET_KEY", "MODEL_KEY", "TRAIN_DATASET_KEY"]
