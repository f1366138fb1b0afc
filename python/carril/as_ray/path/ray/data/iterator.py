"""`ray.data.iterator`."""

from carril.data import DataIterator

__all__ = ["DataIterator"]
