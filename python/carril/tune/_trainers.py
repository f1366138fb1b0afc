"""A trainer as what is tuned: each trial is a run of its group, with the trial's part of the config."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of

if TYPE_CHECKING:
    from carril.train._config import RunConfig
    from carril.train._trainer import DataParallelTrainer

T = TypeVar("T")

_LOOP = "train_loop_config"
SCALING = "scaling_config"
_DATA = "datasets"
# `resume` is about the run of that name.
_PLACE = ("name", "storage_path", "storage_filesystem", "local_dir", "resume")


def is_trainer(trainable: Any) -> bool:
    import sys

    module = sys.modules.get("carril.train._trainer")
    return module is not None and isinstance(trainable, module.DataParallelTrainer)


def checked_space(trainer: "DataParallelTrainer", space: dict[str, Any]) -> dict[str, Any]:
    """What can be searched of a trainer is the config of its function, which data it reads, and how it is scaled."""
    others = [name for name in space if name not in (_LOOP, _DATA, SCALING)]
    if others:
        raise NotAvailableError(
            f"`param_space` of a trainer names `{others[0]}`: only `{_LOOP}`, `{SCALING}` and `{_DATA}` can be searched",
            hints=[f'put the parameters of the function under `{{"{_LOOP}": …}}`'],
        )
    scaling = space.get(SCALING)
    if dataclasses.is_dataclass(scaling):
        space = {**space, SCALING: _set_fields(scaling)}
    if trainer.train_loop_per_worker is None:
        raise ConfigError("the trainer has no function: there is nothing to tune")
    trainer.scaling_config.refuse_unbuilt()
    if trainer.running_in_local_mode:
        raise NotAvailableError(
            "a trainer with `num_workers=0` cannot be tuned", hints=["give a number of workers, 1 or more"]
        )
    return space


def _set_fields(config: Any) -> dict[str, Any]:
    """The fields of a config that are not the default's."""
    default = type(config)()
    names = (field.name for field in dataclasses.fields(config))
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name)}


def scaled(trainer: "DataParallelTrainer", config: dict[str, Any]) -> dict[str, Any]:
    """The config of a trial with its whole scaling, as the head reads it: the trainer's, with what was drawn in its place."""
    given = config[SCALING]
    if dataclasses.is_dataclass(given):
        given = _set_fields(given)
    if not isinstance(given, Mapping):
        raise ConfigTypeError(
            f"`{SCALING}` of a trial is {kind_of(given)}: it must be a `ScalingConfig`, or a dict of its fields"
        )
    own = type(trainer.scaling_config)(**merged(_set_fields(trainer.scaling_config), given))
    own.refuse_unbuilt()
    if not own.max_workers:
        raise NotAvailableError(
            "a trial with `num_workers=0` cannot run", hints=["give a number of workers, 1 or more"]
        )
    whole = {**given, "num_workers": own.num_workers, "resources_per_worker": own.worker_resources}
    return {**config, SCALING: whole}


def merged_run_config(of_trainer: "RunConfig", of_tuner: "RunConfig") -> "RunConfig":
    """What the tuner's config sets goes first, field by field; the trainer has the rest.

    Name and storage are one thing, the place: the trainer's counts where the tuner names neither.
    """
    both = _merged_fields(of_trainer, of_tuner, skipped=_PLACE)
    for name in ("failure_config", "checkpoint_config"):
        # `fail_fast` is about the search and `max_failures` about each trial: one of each may come together here.
        setattr(both, name, _merged_fields(getattr(of_trainer, name), getattr(of_tuner, name)))
    if of_tuner.name is None and of_tuner.storage is None:
        both.name, both.storage_path = of_trainer.name, of_trainer.storage
        both.storage_filesystem = of_trainer.storage_filesystem
    return both


def _merged_fields(first: T, second: T, skipped: tuple[str, ...] = ()) -> T:
    """`second`, with the values of `first` where it has the default."""
    both, default = copy.copy(second), type(second)()
    for name in (field.name for field in dataclasses.fields(second) if field.name not in skipped):  # type: ignore[arg-type]
        if getattr(second, name) == getattr(default, name):
            setattr(both, name, getattr(first, name))
    return both


def merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The config with what was searched in its place, also inside of dicts."""
    result = dict(own)
    for key, value in given.items():
        before = result.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result


def data_details(trainer: "DataParallelTrainer", space: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's data sets, for the workers of every trial."""
    if not trainer.datasets and _DATA not in space:
        return {}
    from carril.train._data import details_of

    workers = trainer.scaling_config.max_workers
    return details_of(trainer.datasets, trainer.data_config, workers, more_come=_DATA in space)


def data_words(trainer: "DataParallelTrainer") -> dict[str, str]:
    """Which rows the trainer's data sets have, for the records of the trials."""
    if not trainer.datasets:
        return {}
    from carril.train._data import words_of

    return words_of(trainer.datasets)


def data_environment(trainer: "DataParallelTrainer", space: Mapping[str, Any]) -> dict[str, str]:
    if _DATA in space:
        from carril._internal.mappers import DATA_FUNCTIONS

        # Which of them a trial reads, and whether those have functions, is drawn later.
        return {DATA_FUNCTIONS: "1"}
    if not trainer.datasets:
        return {}
    from carril.train._data import environment_of

    return environment_of(trainer.datasets)


def details_in_trial(details: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What the workers of this trial know: with the data sets of its config."""
    if _DATA not in config:
        return details
    from carril.train import _data

    return _data.details_in_trial(details, config[_DATA])


def arguments_in_trial(
    function: Callable[..., Any], own: dict[str, Any] | None, config: dict[str, Any]
) -> tuple[Any, ...]:
    from carril.train._trainer import _arguments

    return _arguments(function, merged(own or {}, config.get(_LOOP) or {}))
