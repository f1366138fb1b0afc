"""PyTorch: a trainer whose workers find a process group, and helpers for models and data loaders.

Importing this module does not import torch: a driver may have none of it to do.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carril.train.torch._amp import accelerate as accelerate
    from carril.train.torch._amp import backward as backward
    from carril.train.torch._amp import prepare_optimizer as prepare_optimizer
    from carril.train.torch._checkpoint import TorchCheckpoint as TorchCheckpoint
    from carril.train.torch._config import TorchConfig as TorchConfig
    from carril.train.torch._prepare import enable_reproducibility as enable_reproducibility
    from carril.train.torch._prepare import get_device as get_device
    from carril.train.torch._prepare import get_devices as get_devices
    from carril.train.torch._prepare import prepare_data_loader as prepare_data_loader
    from carril.train.torch._prepare import prepare_model as prepare_model
    from carril.train.torch._trainer import TorchTrainer as TorchTrainer

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]

_MODULE_OF = {
    "TorchCheckpoint": "_checkpoint",
    "TorchConfig": "_config",
    "TorchTrainer": "_trainer",
    "accelerate": "_amp",
    "backward": "_amp",
    "enable_reproducibility": "_prepare",
    "get_device": "_prepare",
    "get_devices": "_prepare",
    "prepare_data_loader": "_prepare",
    "prepare_model": "_prepare",
    "prepare_optimizer": "_amp",
}
_LATER = frozenset(("LightningTrainer", "TorchPredictor", "xla"))


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        import importlib

        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value
    if name in _LATER:
        from carril.exceptions import NotAvailableError

        raise NotAvailableError(f"`{__name__}.{name}` is not built yet")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
