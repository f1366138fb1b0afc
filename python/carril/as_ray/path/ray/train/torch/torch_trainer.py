"""`ray.train.torch.torch_trainer`: where older scripts import `TorchTrainer` from."""

from carril.train.torch import TorchTrainer

__all__ = ["TorchTrainer"]
