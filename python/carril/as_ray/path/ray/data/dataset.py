"""`ray.data.dataset`."""

from carril.data import Dataset, MaterializedDataset, Schema

__all__ = ["Dataset", "MaterializedDataset", "Schema"]
