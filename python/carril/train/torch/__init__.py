"""PyTorch: a trainer whose workers find a process group, and helpers for models and data loaders.

Importing this module does not import torch: a driver may have none of it to do.
"""

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from carril.train.torch._config import TorchConfig as TorchConfig
    from carril.train.torch._prepare import enable_reproducibility as enable_reproducibility
    from carril.train.torch._prepare import get_device as get_device
    from carril.train.torch._prepare import get_devices as get_devices
    from carril.train.torch._prepare import prepare_data_loader as prepare_data_loader
    from carril.train.torch._prepare import prepare_model as prepare_model
    from carril.train.torch._trainer import TorchTrainer as TorchTrainer

__all__ = [
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
    "TorchConfig": "_config",
    "TorchTrainer": "_trainer",
    "enable_reproducibility": "_prepare",
    "get_device": "_prepare",
    "get_devices": "_prepare",
    "prepare_data_loader": "_prepare",
    "prepare_model": "_prepare",
}
_LATER = frozenset(("LightningTrainer", "TorchCheckpoint", "TorchPredictor", "xla"))


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        import importlib

        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value
    if name in _LATER:
        _not_built(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _not_built(name: str, hint: str | None = None) -> NoReturn:
    from carril.exceptions import NotAvailableError

    raise NotAvailableError(f"`carril.train.torch.{name}` is not built yet", hints=[hint] if hint else [])


def accelerate(amp: bool = False) -> NoReturn:
    _not_built("accelerate", "use `torch.autocast` in the training function")


def prepare_optimizer(optimizer: Any) -> NoReturn:
    _not_built("prepare_optimizer", "an optimizer needs no preparation: use it as it is")


def backward(tensor: Any) -> NoReturn:
    _not_built("backward", "call `tensor.backward()`")
