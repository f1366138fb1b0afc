"""`ray.data.context`."""

from carril.as_ray import missing as _missing
from carril.data import DataContext

# The older name.
DatasetContext = DataContext

__all__ = ["DataContext", "DatasetContext"]

__getattr__ = _missing.attributes("ray.data.context", ("ShuffleStrategy",))
