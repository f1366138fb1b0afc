"""Functions and values on their way to another process, by cloudpickle.

What the driver's script defines travels by value, what is installed by name. When something cannot travel, the error
names the variable that holds it, which pickle itself does not.
"""

import sys
from collections.abc import Callable
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, with_article


def dumps(value: object) -> bytes:
    """The pickle of a value, with cloudpickle's reach."""
    import cloudpickle

    return bytes(cloudpickle.dumps(value))


def loads(data: bytes) -> Any:
    """The value of a pickle. Only for bytes from our own workers or our own driver."""
    import pickle

    return pickle.loads(data)


def dump_call(payload: dict[str, Any], function: Callable[..., Any], config: object) -> bytes:
    """The pickle of what a worker runs; an error names the culprit in the function or in its config."""
    try:
        return dumps(payload)
    except Exception as error:
        raise _explain(error, function, config) from error


def script_classes() -> list[type]:
    """The classes that the driver's script defines, but for those that cannot travel."""
    main = sys.modules.get("__main__")
    own = [value for value in vars(main).values() if isinstance(value, type) and value.__module__ == "__main__"]
    return [kind for kind in own if not _refusal(kind)]


def _explain(error: Exception, function: Callable[..., Any], config: object) -> ConfigError:
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(config, dict):
        for key, value in config.items():
            reason = _refusal(value)
            if reason:
                return ConfigTypeError(
                    f"`train_loop_config[{key!r}]`, {_kind_of(value)}, cannot be sent to the workers: {reason}",
                    hints=["send what it is made from, and make it inside the function"],
                )
    culprit = _culprit(function, set())
    if culprit is not None:
        place, value, reason = culprit
        return ConfigTypeError(
            f"`{name}` uses {place}, {_kind_of(value)}, which cannot be sent to the workers: {reason}",
            hints=[f"make it inside `{name}`, so that every worker has its own"],
        )
    return ConfigTypeError(f"`{name}` cannot be sent to the workers: {type(error).__name__}: {error}")


def _kind_of(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return with_article(name)


def _refusal(value: object) -> str:
    try:
        dumps(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _culprit(function: Any, seen: set[int]) -> tuple[str, object, str] | None:
    """The innermost variable, of this function or of one that it uses, that cannot be pickled."""
    if id(function) in seen:
        return None
    seen.add(id(function))
    inner = getattr(function, "__func__", getattr(function, "__wrapped__", function))
    for place, value in _variables(inner):
        reason = _refusal(value)
        if not reason:
            continue
        deeper = _culprit(value, seen) if callable(value) else None
        return deeper if deeper is not None else (place, value, reason)
    return None


def _variables(function: Any) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    code = getattr(function, "__code__", None)
    if isinstance(function, type):
        for attribute in vars(function).values():
            found.extend(_variables(getattr(attribute, "__func__", attribute)))
    elif code is not None:
        names = getattr(function, "__globals__", {})
        for inner in _codes(code):
            found.extend((f"the global `{name}`", names[name]) for name in inner.co_names if name in names)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                found.append((f"the variable `{name}`", cell.cell_contents))
            except ValueError:  # not assigned yet
                continue
        defaults = {**dict(enumerate(function.__defaults__ or ())), **(function.__kwdefaults__ or {})}
        found.extend((f"the default value {key!r}", value) for key, value in defaults.items())
    else:
        found.extend((f"the attribute `{name}`", value) for name, value in getattr(function, "__dict__", {}).items())
    return found


def _codes(code: Any) -> list[Any]:
    """A function's code and that of the functions written inside it."""
    codes = [code]
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            codes.extend(_codes(constant))
    return codes
