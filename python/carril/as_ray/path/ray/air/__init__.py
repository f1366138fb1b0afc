"""`ray.air`: the older generation's names, by carril's own classes and by `carril.as_ray.legacy`.

That this package is loaded is what tells `fit()` that a script is of the older generation and expects its automatic
fields.
"""

from carril.as_ray import missing as _missing
from carril.as_ray.legacy import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from carril.train import Checkpoint, Result

__all__ = ["Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"]

__getattr__ = _missing.attributes(
    "ray.air",
    ("AcquiredResources", "DataBatchType", "DatasetConfig", "ResourceRequest", "execution", "util"),
    ("checkpoint", "config", "constants", "integrations", "result", "session"),
)
