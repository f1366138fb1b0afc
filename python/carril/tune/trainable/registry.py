"""Trainables by a name of the user's choice."""

from collections.abc import Callable
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.error import TrainableError

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """From here on `name` stands for this function or class: `Tuner("name")`. The last one of a name counts."""
    from carril.tune.trainable._names import check_trainable

    _check_name(name)
    if isinstance(trainable, str):
        raise ConfigTypeError(f"`register_trainable({name!r}, …)` is given a name: it must be a function or a class")
    check_trainable(trainable)
    _trainables[name] = trainable


def get_trainable(name: str) -> Any:
    """What is registered under a name."""
    if name not in _trainables:
        import difflib

        close = difflib.get_close_matches(name, _trainables, n=1)
        hints = [f"did you mean {close[0]!r}?"] if close else [f"`register_trainable({name!r}, …)` gives it one"]
        raise TrainableError(f"no trainable is registered as {name!r}", hints=hints)
    return _trainables[name]


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Keeps a function that makes an environment, for those who ask for it by `get_env_creator`."""
    _check_name(name)
    if not callable(env_creator):
        raise ConfigTypeError(f"`register_env({name!r}, …)` is given {kind_of(env_creator)}: it must be a function")
    _environments[name] = env_creator


def get_env_creator(name: str) -> Callable[..., Any]:
    """What `register_env` has kept under a name."""
    if name not in _environments:
        raise ConfigError(f"no environment is registered as {name!r}")
    return _environments[name]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigTypeError(f"a name is a text, and {name!r} is none")
