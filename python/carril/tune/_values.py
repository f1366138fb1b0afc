"""The user's values on their way to the head and back: what is plain stays plain, anything else travels as its pickle."""

from typing import Any

from carril._internal.pickling import loads
from carril._native import Opaque


class _Kept:
    """A value that is more than a number, a text or a container of them. Its pickle is the value's own."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._value,)

    def __repr__(self) -> str:
        return repr(self._value)


def _itself(value: Any) -> Any:
    return value


def encoded(value: Any) -> Any:
    """What the native side is given for a value of the user's."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encoded(item) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: encoded(item) for key, item in value.items()}
    # Numbers of numpy are numbers, and shown as such.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        item = value.item()
        if type(item) in (bool, int, float, str):
            return item
    return _Kept(value)


def decoded(value: Any) -> Any:
    """A value of the user's again, of what the native side has."""
    if isinstance(value, Opaque):
        return loads(value.pickle)
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if isinstance(value, dict):
        return {key: decoded(item) for key, item in value.items()}
    return value
