"""Whole numbers as callers give them: numpy's are as good as Python's."""

import operator
from typing import Any

from carril.exceptions import ConfigError


def whole(value: Any, least: int, told: str, what: str) -> int:
    """`told` is what the caller wrote, and `what` is what it should be a number of."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ConfigError(f"`{told}` is not a number of {what}", hints=[f"give {least} or more"])
    return number


def seed_of(value: Any) -> int | None:
    """Of an order; nothing: another one each time."""
    try:
        number = None if value is None else operator.index(value)
    except TypeError:
        number = -1
    if number is not None and not 0 <= number < 1 << 64:
        raise ConfigError(f"`seed={value!r}` is no seed", hints=["give a whole number that is not negative"])
    return number
