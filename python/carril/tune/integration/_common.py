"""What the callbacks for other libraries share: which metrics are reported, and a checkpoint of one file."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of

# Names of the library's metrics, all if None; a dict has the name to report first and the library's second.
Metrics = str | Sequence[str] | Mapping[str, str] | None


def by_name(metrics: Metrics) -> dict[str, str] | None:
    """The library's names by those that are reported; None for all there are."""
    if metrics is None:
        return None
    if isinstance(metrics, str):
        return {metrics: metrics}
    if isinstance(metrics, Mapping):
        return dict(metrics)
    if isinstance(metrics, (list, tuple)) and all(isinstance(name, str) for name in metrics):
        return {name: name for name in metrics}
    raise ConfigTypeError(f"`metrics` is {kind_of(metrics)}: it must be a name, a list of names, or a dict of them")


def chosen(names: dict[str, str] | None, found: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics to report, out of those that the library has."""
    if names is None:
        return dict(found)
    for theirs in names.values():
        if theirs not in found:
            there = ", ".join(f"`{name}`" for name in found) or "none"
            raise ConfigError(f"`metrics` names `{theirs}`, which is not there: there are {there}")
    return {ours: found[theirs] for ours, theirs in names.items()}


def report(metrics: dict[str, Any], save: Callable[[str], object] | None = None, filename: str = "") -> None:
    """Reports from inside a trial, with a checkpoint of the one file that `save` writes."""
    from carril.tune import report as report_to_trial  # type: ignore[attr-defined,unused-ignore]

    report_to_trial(metrics, checkpoint=None if save is None else _checkpoint(save, filename))


def keep(metrics: dict[str, Any], save: Callable[[str], object], filename: str) -> None:
    """Stores a checkpoint with the results that were reported last, without a new one."""
    from carril.tune import _session

    _session.report_trial(metrics, _checkpoint(save, filename), silent=True)


def _checkpoint(save: Callable[[str], object], filename: str) -> Any:
    from carril.train._checkpoint import Checkpoint

    checkpoint = Checkpoint._temporary()
    save(os.path.join(checkpoint.path, filename))
    return checkpoint


def file_name(value: object) -> str:
    """The name of the file in a checkpoint, checked."""
    if not isinstance(value, str) or not value or os.path.basename(value) != value:
        raise ConfigError(f"`filename` is {value!r}: it must be the name of a file, without a directory")
    return value


def frequency_of(value: object) -> int:
    """Every how many rounds a checkpoint is made, checked."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"`frequency` is {value!r}: it must be a number of rounds, or 0 for none")
    return value


def hooks(on: object, known: Sequence[str], library: str) -> list[str]:
    """The library's events that were named, checked."""
    names = [on] if isinstance(on, str) else list(on) if isinstance(on, (list, tuple)) else None
    if names is None:
        raise ConfigTypeError(f"`on` is {kind_of(on)}: it must be the name of an event, or a list of names")
    for name in names:
        if name not in known:
            raise ConfigError(f"{library} has no event {name!r}: there are {', '.join(known)}")
    return names
