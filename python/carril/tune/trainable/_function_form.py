"""A trial in the form of a function of its config: it reports, returns, or yields its results.

Two older forms of its arguments are understood: `(config, reporter)` and `(config, checkpoint_dir=None)`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from inspect import Parameter, Signature, iscoroutinefunction, isgenerator, signature
from numbers import Number
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of

# Where a function gives a number alone.
DEFAULT_METRIC = "_metric"

_REPORTER = "reporter"
_CHECKPOINT_DIR = "checkpoint_dir"


def check(function: Callable[..., Any], name: str) -> None:
    """Raises unless the function can be called with a config, in one of the forms."""
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise ConfigError(
            f"`{name}` is an async function, which a trial cannot run",
            hints=["give a plain function that calls `asyncio.run`"],
        )
    found = _signature(function)
    if found is None:
        return
    try:
        found.bind({}, **dict.fromkeys(_extra(found)))
    except TypeError:
        raise ConfigError(_complaint(name, found), hints=_hints(name, found)) from None


def run(function: Callable[..., Any], config: dict[str, Any], name: str) -> None:
    """Runs one trial to its end. It leaves by SystemExit where the trial is to stop at a report of its own."""
    with ExitStack() as stack:
        extra: dict[str, Any] = {}
        for wanted in _extra(_signature(function)):
            extra[wanted] = _reporter if wanted == _REPORTER else _checkpoint_directory(stack)
        outcome = function(config, **extra)
        if isgenerator(outcome):
            _follow(outcome, name)
        elif outcome is not None:
            _report_last(outcome, name)


def _follow(results: Any, name: str) -> None:
    from carril.tune import _session

    try:
        for result in results:
            metrics = _metrics(result)
            if metrics is None:
                raise ConfigTypeError(f"`{name}` yielded {kind_of(result)}: it must yield a dict or a number")
            if _session.report_trial(metrics) in ("pause", "stop"):
                return
    finally:
        # So that its own `finally` runs here, and not when somebody collects it.
        results.close()


def _report_last(outcome: Any, name: str) -> None:
    metrics = _metrics(outcome)
    if metrics is None:
        import warnings

        # Not an error: hours of training would be lost to it.
        warnings.warn(f"`{name}` returned {kind_of(outcome)}, which is no result: left out", stacklevel=2)
        return
    from carril.tune import _session

    _session.report_trial(metrics)


def _metrics(value: Any) -> dict[str, Any] | None:
    """What was given, as metrics; None if it is neither a dict nor a number."""
    if isinstance(value, dict):
        return value
    return {DEFAULT_METRIC: value} if isinstance(value, Number) else None


def _reporter(_metrics: dict[str, Any] | None = None, **metrics: Any) -> None:
    """What the older functions get beside the config: it is called with the metrics by name."""
    from carril.tune import report  # type: ignore[attr-defined,unused-ignore]

    report({**(_metrics or {}), **metrics})


def _checkpoint_directory(stack: ExitStack) -> str | None:
    """The newest checkpoint as a local directory, for as long as the function runs."""
    from carril.tune import _session

    checkpoint = _session.latest_checkpoint()
    return None if checkpoint is None else str(stack.enter_context(checkpoint.as_directory()))


def _signature(function: Callable[..., Any]) -> Signature | None:
    try:
        return signature(function)
    except (ValueError, TypeError):  # a function in C that does not tell
        return None


def _extra(found: Signature | None) -> list[str]:
    """The arguments of the older forms that the function has, beside the first."""
    names = list(found.parameters)[1:] if found is not None else []
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [
        name
        for name in names
        if name in (_REPORTER, _CHECKPOINT_DIR) and found is not None and found.parameters[name].kind in kinds
    ]


def _required(found: Signature) -> list[str]:
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    needed = [one for one in found.parameters.values() if one.default is Parameter.empty and one.kind not in variable]
    return [one.name for one in needed]


def _complaint(name: str, found: Signature) -> str:
    needed = _required(found)
    if not needed:
        return f"`{name}{found}` takes no config: the function of a trial takes one argument, its config"
    shown = ", ".join(f"`{one}`" for one in needed)
    return f"`{name}` needs {shown}: the function of a trial is called with one argument, its config"


def _hints(name: str, found: Signature) -> list[str]:
    rest = _required(found)[1:]
    if not rest:
        return [f"write `def {name}(config):`"]
    return [f"`tune.with_parameters({name}, {', '.join(f'{one}=…' for one in rest)})` gives it the others"]
