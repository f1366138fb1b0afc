"""A trainable with more: values that its function gets beside the config, and what a trial of it reserves.

What is given stays as it was: each returns a new function or class.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from carril.exceptions import ConfigError, ConfigTypeError
from carril.tune.trainable import _resources
from carril.tune.trainable._names import name_of
from carril.tune.trainable.registry import get_trainable
from carril.tune.trainable.trainable import Trainable

T = TypeVar("T", bound="type[Trainable] | Callable[..., Any]")


def with_parameters(trainable: T, **kwargs: Any) -> T:
    """The same trainable, with values beside the config: a function gets them as arguments, a class in `setup`.

    They travel once, however many trials there are: this is the way for data sets and other large objects.
    """
    _refuse_others("with_parameters", trainable)
    if not isinstance(trainable, type):
        _check_arguments(trainable, kwargs)
        return _like(functools.partial(trainable, **kwargs), trainable)
    base: Any = trainable

    class WithParameters(base):  # type: ignore[misc]
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config, **kwargs)

    return _named_like(WithParameters, trainable)


@overload
def with_resources(trainable: str, resources: Any) -> Any: ...


@overload
def with_resources(trainable: T, resources: Any) -> T: ...


def with_resources(trainable: Any, resources: Any) -> Any:
    """The same trainable, whose trials reserve these resources: a dict, a `PlacementGroupFactory`, or a function of
    the config that returns either. Without it a trial reserves one CPU. A registered name stands for its trainable.
    """
    if isinstance(trainable, str):
        named = with_resources(get_trainable(trainable), resources)
        named.__name__ = trainable
        return named
    _refuse_others("with_resources", trainable)
    request = _resources.checked(resources)
    if not isinstance(trainable, type):
        partial = functools.partial(trainable)
        found = _like(partial, trainable)
        partial._resources = request  # type: ignore[attr-defined]
        return found
    base: Any = trainable

    class WithResources(base):  # type: ignore[misc]
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            return request(config) if callable(request) else request

    return _named_like(WithResources, trainable)


def _like(partial: Any, function: T) -> T:
    """Not `functools.update_wrapper`: with `__wrapped__`, the arguments would seem to be those of the function."""
    partial.__name__ = name_of(function)
    partial.__doc__ = getattr(function, "__doc__", None)
    partial.__module__ = getattr(function, "__module__", None)
    if hasattr(function, "_resources"):
        partial._resources = function._resources
    return cast("T", partial)


def _named_like(made: Any, kind: T) -> T:
    made.__name__, made.__qualname__, made.__doc__ = kind.__name__, kind.__qualname__, kind.__doc__
    made.__module__ = kind.__module__
    return cast("T", made)


def _check_arguments(function: Any, given: dict[str, Any]) -> None:
    import inspect

    try:
        inspect.signature(function).bind_partial({}, **given)
    except TypeError as error:
        raise ConfigTypeError(f"`with_parameters({name_of(function)}, …)`: {error}") from None
    except ValueError:  # a function in C that does not tell
        return


def _refuse_others(what: str, trainable: Any) -> None:
    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        return
    if not isinstance(trainable, type) and callable(trainable):
        return
    from carril.tune.trainable._names import _is_trainer

    if _is_trainer(trainable):
        raise ConfigError(
            f"`{what}` is given a trainer",
            hints=["its `scaling_config` says what its workers reserve, its `train_loop_config` what they are given"],
        )
    raise ConfigTypeError(f"`{what}` is given {trainable!r}: it must be a function or a `Trainable` class")
