"""`ray.tune.execution.placement_groups`."""

from carril.tune import PlacementGroupFactory

__all__ = ["PlacementGroupFactory"]
