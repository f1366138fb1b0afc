"""A trainer as what is tuned: each trial is a run of its group, with the trial's part of the config."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, NotAvailableError

if TYPE_CHECKING:
    from carril.train._trainer import DataParallelTrainer

_LOOP = "train_loop_config"


def is_trainer(trainable: Any) -> bool:
    import sys

    module = sys.modules.get("carril.train._trainer")
    return module is not None and isinstance(trainable, module.DataParallelTrainer)


def check(trainer: "DataParallelTrainer", space: Mapping[str, Any]) -> None:
    """What can be searched of a trainer is the config of its function."""
    others = [name for name in space if name != _LOOP]
    if others:
        raise NotAvailableError(
            f"`param_space` of a trainer names `{others[0]}`: only `{_LOOP}` can be searched",
            hints=[f'put the parameters of the function under `{{"{_LOOP}": …}}`'],
        )
    if trainer.train_loop_per_worker is None:
        raise ConfigError("the trainer has no function: there is nothing to tune")
    trainer.scaling_config.refuse_unbuilt()
    if trainer.running_in_local_mode:
        raise NotAvailableError(
            "a trainer with `num_workers=0` cannot be tuned", hints=["give a number of workers, 1 or more"]
        )


def merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The config with what was searched in its place, also inside of dicts."""
    result = dict(own)
    for key, value in given.items():
        before = result.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result


def arguments_in_trial(
    function: Callable[..., Any], own: dict[str, Any] | None, config: dict[str, Any]
) -> tuple[Any, ...]:
    from carril.train._trainer import _arguments

    return _arguments(function, merged(own or {}, config.get(_LOOP) or {}))
