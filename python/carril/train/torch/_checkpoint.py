"""A checkpoint that holds a PyTorch model: whole, or the state of one.

The file is `model.pt`, as `torch.save` writes it. A checkpoint of the older kind, a dict with the key `model`, is read
as well. Reading unpickles: only for files from a source that is trusted.
"""

import os
from typing import TYPE_CHECKING, Any, TypeVar

from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, kind_of
from carril.train._checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

T = TypeVar("T", bound="TorchCheckpoint")

_MODEL_FILE = "model.pt"
_MODEL_KEY = "model"
_WRAPPER = "module."


class TorchCheckpoint(Checkpoint):
    """A checkpoint with a model. `TorchCheckpoint(path)` and `from_checkpoint` open one that was reported."""

    @classmethod
    def from_model(cls: type[T], model: "torch.nn.Module", preprocessor: Any = None) -> T:
        """A checkpoint of a whole model, which needs its class to be there when it is read."""
        import torch

        if not isinstance(model, torch.nn.Module):
            raise ConfigTypeError(
                f"`model` is {kind_of(model)}: it must be a `torch.nn.Module`",
                hints=["`TorchCheckpoint.from_state_dict()` takes the state of one"],
            )
        return cls._saved(_unwrapped(model), preprocessor)

    @classmethod
    def from_state_dict(cls: type[T], state_dict: "Mapping[str, Any]", preprocessor: Any = None) -> T:
        """A checkpoint of a model's state. `get_model` then needs the model that it belongs to."""
        from collections.abc import Mapping

        if not isinstance(state_dict, Mapping):
            raise ConfigTypeError(
                f"`state_dict` is {kind_of(state_dict)}: it must be a dict",
                hints=["`TorchCheckpoint.from_model()` takes the model itself"],
            )
        return cls._saved(dict(state_dict), preprocessor)

    def get_model(self, model: "torch.nn.Module | None" = None) -> "torch.nn.Module":
        """The model. With `model`, its state is loaded into that, and that is returned.

        Names that a DDP model has put `module.` in front of are understood.
        """
        import torch

        saved = self._load()
        if model is None:
            if isinstance(saved, torch.nn.Module):
                return saved
            raise ConfigError(
                f"the checkpoint `{self.path}` has the state of a model and not the model itself",
                hints=["give a model to load it into: `get_model(model)`"],
            )
        if not isinstance(model, torch.nn.Module):
            raise ConfigTypeError(f"`model` is {kind_of(model)}: it must be a `torch.nn.Module`")
        state = saved.state_dict() if isinstance(saved, torch.nn.Module) else saved
        inner = _unwrapped(model)
        inner.load_state_dict(state if state.keys() == inner.state_dict().keys() else _without_wrapper(state))
        return model

    @classmethod
    def _saved(cls: type[T], content: Any, preprocessor: Any) -> T:
        import torch

        checkpoint = cls._temporary()
        torch.save(content, os.path.join(checkpoint.path, _MODEL_FILE))
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint

    def _load(self) -> Any:
        import torch

        with self.as_directory() as directory:
            path = os.path.join(directory, _MODEL_FILE)
            if os.path.exists(path):
                # On the CPU, because the device that it was saved on may not be here.
                return torch.load(path, map_location="cpu", weights_only=False)
            names = sorted(os.listdir(directory))
        content = self.to_dict()
        if isinstance(content.get(_MODEL_KEY), (torch.nn.Module, dict)):
            return content[_MODEL_KEY]
        raise CheckpointError(
            f"the checkpoint `{self.path}` holds no model: it has no `{_MODEL_FILE}`, but {', '.join(names) or 'nothing'}",
            origin="user",
            hints=["`TorchCheckpoint.from_model()` and `from_state_dict()` write one"],
        )


def _unwrapped(model: "torch.nn.Module") -> "torch.nn.Module":
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    inner = model.module if isinstance(model, (DataParallel, DistributedDataParallel)) else model
    return inner


def _without_wrapper(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a DDP model as the model inside names it."""
    if not state or not all(name.startswith(_WRAPPER) for name in state):
        return state
    return {name.removeprefix(_WRAPPER): value for name, value in state.items()}
