"""`ray.tune.syncer`."""

from carril.as_ray import missing as _missing
from carril.tune import SyncConfig

__all__ = ["SyncConfig"]

__getattr__ = _missing.attributes("ray.tune.syncer", ("SyncerCallback", "Syncer"))
