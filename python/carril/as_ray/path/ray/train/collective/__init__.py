"""`ray.train.collective`: carril's own."""

from carril.train.collective import barrier, broadcast_from_rank_zero

__all__ = ["barrier", "broadcast_from_rank_zero"]
