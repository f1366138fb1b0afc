"""What a trainable is called, and what is refused as one."""

import functools
from typing import Any

from carril.exceptions import ConfigError, kind_of
from carril.tune.error import TrainableError
from carril.tune.trainable import _function_form, registry
from carril.tune.trainable.trainable import Trainable


def check_trainable(trainable: Any) -> str:
    """The name for the experiment. Raises, with one sentence, for what cannot be run as a trial."""
    if isinstance(trainable, str):
        check_trainable(registry.get_trainable(trainable))
        return trainable
    if trainable is None:
        raise TrainableError(
            "there is nothing to tune", hints=["give a function of the config, a `Trainable` class or a trainer"]
        )
    if isinstance(trainable, type):
        return _checked_class(trainable)
    if isinstance(trainable, Trainable):
        name = type(trainable).__name__
        raise TrainableError(f"an object of `{name}` was given", hints=[f"give the class: `{name}`"])
    if _is_trainer(trainable):
        return type(trainable).__name__
    if not callable(trainable):
        raise TrainableError(
            f"{kind_of(trainable)} cannot be tuned: give a function of the config, a `Trainable` class or a trainer"
        )
    name = name_of(trainable)
    _function_form.check(trainable, name)
    return name


def name_of(trainable: Any) -> str:
    """What a function or class is called. A lambda has a name that no directory should have."""
    inner = trainable
    while isinstance(inner, functools.partial) and "__name__" not in vars(inner):
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "lambda" if name == "<lambda>" else str(name)


def _checked_class(kind: type) -> str:
    if not issubclass(kind, Trainable):
        raise TrainableError(
            f"the class `{kind.__name__}` is no `Trainable`",
            hints=["derive it from `carril.tune.Trainable`, or give a function of the config"],
        )
    if kind.step is Trainable.step:
        raise ConfigError(
            f"the class `{kind.__name__}` has no `step`", hints=["`step` trains a little and returns a dict of metrics"]
        )
    return kind.__name__


def _is_trainer(trainable: Any) -> bool:
    import sys

    # One who gives a trainer has imported its module.
    module = sys.modules.get("carril.train._trainer")
    return module is not None and isinstance(trainable, module.DataParallelTrainer)
