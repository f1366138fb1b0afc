"""`ray.air.integrations.wandb`."""

from carril.integrations.wandb import WandbLoggerCallback, setup_wandb

__all__ = ["WandbLoggerCallback", "setup_wandb"]
