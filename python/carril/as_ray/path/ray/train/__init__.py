"""`ray.train`: carril's own names, loaded when they are used, and by name the frameworks that are not there yet."""

from carril.as_ray import missing as _missing
from carril.train import __all__ as _names

_SUBMODULES = ("backend", "base_trainer", "collective", "constants", "context", "data_parallel_trainer", "torch", "v2")

# Without the submodules: `from ray.train import *` must not import torch.
__all__ = [name for name in _names if name not in _SUBMODULES]

__getattr__ = _missing.attributes(
    "ray.train",
    (
        "BatchPredictor",
        "GenDataset",
        "NCCLHangError",
        "Predictor",
        "TrainingCallback",
        "TrainingIterator",
        "horovod",
        "huggingface",
        "jax",
        "lightgbm",
        "lightning",
        "mosaic",
        "rl",
        "sklearn",
        "tensorflow",
        "xgboost",
    ),
    _SUBMODULES,
    source="carril.train",
)
