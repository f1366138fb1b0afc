"""`ray.train._checkpoint`: private in Ray, and still imported by scripts."""

from carril.train import Checkpoint

__all__ = ["Checkpoint"]
