"""`ray.train.torch`: carril's own names."""

from carril.as_ray import missing as _missing
from carril.train.torch import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.train.torch",
    (
        "TorchPredictor",
        "TorchWorkerProfiler",
        "train_loop_utils",
        "xla",
    ),
    ("config", "torch_checkpoint", "torch_trainer"),
    source="carril.train.torch",
)
