"""What a user gives as `stop`: rules that the head follows by itself, or a stopper that the driver is asked for."""

import math
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.stopper.stopper import CombinedStopper, FunctionStopper, Stopper

_MUST = "it must be a dict of limits by metric, a function `(trial_id, result)`, a `Stopper`, or a list of these"


def as_stopper(stop: object) -> tuple[dict[str, float], Stopper | None]:
    """The rules (a trial stops where `result[name] >= limit`; `a/b` for a nested one), and the stopper if there is one."""
    rules: dict[str, float] = {}
    stoppers: list[Stopper] = []
    for one in stop if isinstance(stop, (list, tuple)) else [stop]:
        if isinstance(one, Mapping):
            for name, limit in _flat(one):
                value = _limit(name, limit)
                # Any of several rules stops the trial: the lowest one comes first.
                rules[name] = min(value, rules.get(name, value))
        elif one is not None:
            stoppers.append(_as_stopper(one))
    if len(stoppers) > 1:
        return rules, CombinedStopper(*stoppers)
    return rules, stoppers[0] if stoppers else None


def _flat(rules: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """A nested metric may be written as a nested dict, or as `a/b`."""
    for name, limit in rules.items():
        if not isinstance(limit, Mapping):
            yield name, limit
            continue
        for inner, value in _flat(limit):
            yield (f"{name}/{inner}" if isinstance(name, str) and isinstance(inner, str) else None), value


def _limit(name: object, limit: object) -> float:
    if not isinstance(name, str) or not name:
        raise ConfigTypeError(f"`stop` has the key {name!r}: it must be the name of a metric")
    if not isinstance(limit, Real):
        raise ConfigTypeError(f"`stop[{name!r}]` is {kind_of(limit)}: it must be a number")
    value = float(limit)
    if math.isnan(value):
        raise ConfigError(f"`stop[{name!r}]` is NaN, which no metric reaches")
    return value


def _as_stopper(one: object) -> Stopper:
    if isinstance(one, Stopper):
        return one
    if isinstance(one, type) and issubclass(one, Stopper):
        raise ConfigTypeError(f"`stop` is the class `{one.__name__}`", hints=[f"make one: `{one.__name__}(…)`"])
    if not callable(one):
        raise ConfigTypeError(f"`stop` is {kind_of(one)}: {_MUST}")
    import inspect

    try:
        inspect.signature(one).bind("trial", {})
    except TypeError as error:
        name = getattr(one, "__name__", repr(one))
        raise ConfigTypeError(f"`stop` is `{name}`, which does not take `(trial_id, result)`: {error}") from None
    except ValueError:  # a function in C that does not tell
        pass
    return FunctionStopper(one)
