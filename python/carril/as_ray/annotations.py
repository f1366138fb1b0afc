"""`ray.util.annotations`: decorators that say how stable a name is. Libraries put them on their own; they change nothing."""

from typing import Any

__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]


class RayDeprecationWarning(DeprecationWarning):
    """Of a name that will go."""


def _decorator(*args: Any, **_kwargs: Any) -> Any:
    """With arguments or without."""
    if len(args) == 1 and not _kwargs and callable(args[0]):
        return args[0]
    return lambda decorated: decorated


PublicAPI = DeveloperAPI = Deprecated = _decorator
