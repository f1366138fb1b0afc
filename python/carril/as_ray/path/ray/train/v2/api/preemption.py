"""`ray.train.v2.api.preemption`."""

from carril.train import PreemptionInfo

__all__ = ["PreemptionInfo"]
