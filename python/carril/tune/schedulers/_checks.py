"""Checks of a scheduler's arguments: one sentence each, which names the scheduler, the argument and what it must be."""

import math
from numbers import Integral, Real

from carril.exceptions import ConfigError, ConfigTypeError, kind_of


def number(owner: str, name: str, value: object, least: float, must: str, *, open_end: bool = False) -> float:
    """A finite number of at least `least`, or above it with `open_end`."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ConfigTypeError(f"`{owner}({name}=…)` is {kind_of(value)}: it must be {must}")
    found = float(value)
    if not math.isfinite(found) or found < least or (open_end and found == least):
        raise ConfigError(f"`{owner}({name}={value!r})`: it must be {must}")
    return found


def count(owner: str, name: str, value: object, least: int, must: str) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ConfigTypeError(f"`{owner}({name}=…)` is {kind_of(value)}: it must be {must}")
    if value < least:
        raise ConfigError(f"`{owner}({name}={value!r})`: it must be {must}")
    return int(value)


def between(owner: str, name: str, value: object, least: float, most: float) -> float:
    must = f"a number from {least:g} to {most:g}"
    found = number(owner, name, value, least, must)
    if found > most:
        raise ConfigError(f"`{owner}({name}={value!r})`: it must be {must}")
    return found


def flag(owner: str, name: str, value: object) -> bool:
    if value is not True and value is not False:
        raise ConfigTypeError(f"`{owner}({name}={value!r})`: it must be True or False")
    return value


def text(owner: str, name: str, value: object, must: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigTypeError(f"`{owner}({name}={value!r})`: it must be {must}")
    return value


def metric_name(owner: str, value: object) -> str | None:
    return None if value is None else text(owner, "metric", value, "the name of a metric")


def mode_name(owner: str, value: object) -> str | None:
    if value not in (None, "min", "max"):
        raise ConfigError(f"`{owner}(mode={value!r})`: it must be 'min' or 'max'")
    return None if value is None else str(value)


def seed_number(owner: str, value: object) -> int | None:
    return None if value is None else count(owner, "seed", value, 0, "a whole number, 0 or more, or None")
