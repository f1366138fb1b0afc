"""`ray.train.torch.torch_checkpoint`: where older scripts import `TorchCheckpoint` from."""

from carril.train.torch import TorchCheckpoint

__all__ = ["TorchCheckpoint"]
