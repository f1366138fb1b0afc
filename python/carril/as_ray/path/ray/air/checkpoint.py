"""`ray.air.checkpoint`: the checkpoint of the older generation is carril's own, with `from_dict` and `to_dict`."""

from carril.train import Checkpoint

__all__ = ["Checkpoint"]
