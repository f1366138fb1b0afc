"""`ray.train.torch.config`: where some scripts import `TorchConfig` from."""

from carril.train.torch import TorchConfig

__all__ = ["TorchConfig"]
