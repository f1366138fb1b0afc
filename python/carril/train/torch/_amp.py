"""The older helpers for mixed precision: `accelerate`, `prepare_optimizer`, `backward`.

`accelerate(amp=True)` holds for one run: models that are prepared afterwards compute in half precision where that is
safe. On a GPU that is float16, and the loss is scaled so that small gradients do not vanish; on a CPU it is bfloat16,
which has the range of float32 and needs no scaling. Without `accelerate` the helpers do what plain torch does.

AMP-1: a prepared model and optimizer are the caller's own objects, and pickle without a trace of this module.
"""

from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any

from carril._internal.generation import under_as_ray
from carril.exceptions import ConfigTypeError
from carril.train import _session

if TYPE_CHECKING:
    import torch


class Precision:
    """What one run computes in. `scaler` is None where the loss needs no scaling."""

    def __init__(self, device_type: str, dtype: "torch.dtype", scaler: Any) -> None:
        self.device_type = device_type
        self.dtype = dtype
        self.scaler = scaler


# By run, because with `num_workers=0` one process has several after another.
_accelerated: "tuple[_session.SessionLike, Precision | None] | None" = None


def _tell_of(name: str) -> None:
    if under_as_ray():
        from carril.as_ray.deprecated import tell

        tell(f"`ray.train.torch.{name}`", "use `torch.amp` itself")


def accelerate(amp: bool = False) -> None:
    """Turns mixed precision on for this run. To be called before `prepare_model` and `prepare_optimizer`."""
    _tell_of("accelerate")
    session = _session.current("accelerate()")
    if not isinstance(amp, bool):
        raise ConfigTypeError(f"`amp` is {amp!r}: it must be True or False")
    use(session, _half_precision() if amp else None)


def use(session: "_session.SessionLike", precision: Precision | None) -> None:
    """Sets what the run of this session computes in. Once: what was prepared before would differ from the rest."""
    global _accelerated
    if _accelerated is not None and _accelerated[0] is session:
        raise RuntimeError(
            "`accelerate()` was called before in this run\n"
            "hint: call it once, at the beginning of the training function"
        )
    _accelerated = (session, precision)


def _half_precision() -> Precision:
    import torch

    from carril.train.torch._prepare import get_device

    device_type = get_device().type
    if device_type == "cpu":
        return Precision("cpu", torch.bfloat16, None)
    return Precision(device_type, torch.float16, torch.amp.GradScaler(device_type))


def _precision() -> Precision | None:
    if _accelerated is None or _accelerated[0] is not _session.entered():
        return None
    return _accelerated[1]


def with_autocast(model: "torch.nn.Module") -> "torch.nn.Module":
    """The model, whose forward pass runs in the run's precision."""
    precision = _precision()
    if precision is None:
        return model
    import torch

    forward = torch.autocast(precision.device_type, dtype=precision.dtype)(model.forward)
    # On the object, not on its class: other models of the class stay as they are.
    model.forward = forward
    model.__getstate__ = MethodType(_state_without_autocast, model)  # type: ignore[method-assign]
    return model


def _state_without_autocast(model: "torch.nn.Module") -> Any:
    state: Any = type(model).__getstate__(model)  # type: ignore[no-untyped-call]
    if not isinstance(state, dict):
        return state
    return {name: value for name, value in state.items() if name not in ("forward", "__getstate__")}


def prepare_optimizer(optimizer: "torch.optim.Optimizer") -> "torch.optim.Optimizer":
    """The optimizer, whose `step()` undoes the scaling of `backward()` and skips gradients that overflowed."""
    _tell_of("prepare_optimizer")
    _session.current("prepare_optimizer()")
    precision = _precision()
    if precision is None or precision.scaler is None or getattr(optimizer, "_carril_scaler", None) is not None:
        return optimizer
    plain_step = optimizer.step
    stepping = False

    # With the marks that a learning rate scheduler has put on the plain one, by which it knows its optimizer.
    @wraps(plain_step)
    def scaled_step(own: Any, *arguments: Any, **options: Any) -> Any:
        # The scaler itself calls `step()` when it has looked at the gradients.
        nonlocal stepping
        if stepping:
            return plain_step(*arguments, **options)
        stepping = True
        try:
            value = precision.scaler.step(own, *arguments, **options)
        finally:
            stepping = False
        precision.scaler.update()
        return value

    # On the object: learning rate schedulers look for an Optimizer, and for its own `param_groups`.
    optimizer._carril_scaler = precision.scaler  # type: ignore[attr-defined]
    optimizer.step = MethodType(scaled_step, optimizer)  # type: ignore[method-assign]
    return optimizer


def backward(tensor: "torch.Tensor") -> None:
    """`tensor.backward()`, with the loss scaled where the run's precision needs it."""
    _session.current("backward()")
    precision = _precision()
    if precision is not None and precision.scaler is not None:
        tensor = precision.scaler.scale(tensor)
    tensor.backward()  # type: ignore[no-untyped-call]
