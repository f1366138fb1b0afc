"""The base of every searcher, and of a user's own.

A searcher gets every report and every end, and is asked for a config whenever there is room for a trial. Calls
come from one thread, in the driver. It is saved between trials and goes on from what was saved.
"""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of

__all__ = ["Searcher"]


class Searcher:
    """Suggests configs. A subclass has `suggest` and `on_trial_complete`; what it keeps must pickle."""

    FINISHED: ClassVar[str] = "FINISHED"
    CKPT_FILE_TMPL: ClassVar[str] = "searcher-state-{}.pkl"

    # Also for a subclass that does not call `__init__`.
    _metric: Any = None
    _mode: Any = None

    def __init__(self, metric: Any = None, mode: Any = None) -> None:
        check_objective(type(self).__name__, metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> Any:
        """The name of what is to become small or large; None where `TuneConfig` is to say it."""
        return self._metric

    @property
    def mode(self) -> Any:
        """ "min" or "max"."""
        return self._mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Told once, before the first suggestion. False: the space of the experiment is not used by this searcher."""
        return False

    def suggest(self, trial_id: str) -> Any:
        """A config; None for not now; `Searcher.FINISHED` for no more, ever."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `suggest`")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reported."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended. `result` is its last one, and None where it failed or had none."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `on_trial_complete`")

    def on_pause(self, trial_id: str) -> None:
        """A scheduler paused a trial."""

    def on_unpause(self, trial_id: str) -> None:
        """A paused trial goes on."""

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """True: the searcher keeps to this limit itself."""
        return False

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Something that was measured before: it is learnt from, and not tried again."""
        raise NotAvailableError(
            f"`{type(self).__name__}` does not learn from points that were measured before",
            hints=["`points_to_evaluate` tries them first"],
        )

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """The trials of an earlier experiment that have ended."""
        trials = getattr(trials_or_analysis, "trials", trials_or_analysis)
        for trial in trials if isinstance(trials, (list, tuple)) else [trials]:
            value = lookup(getattr(trial, "last_result", None) or {}, metric)
            status = str(getattr(trial, "status", "")).lower()
            if isinstance(value, (int, float)) and status in ("terminated", "error"):
                self.add_evaluated_point(dict(trial.config), float(value), error=status == "error")

    def get_state(self) -> dict[str, Any]:
        """Everything that it knows."""
        return dict(vars(self))

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes over what `get_state` returned."""
        vars(self).update(state)

    def save(self, checkpoint_path: "str | os.PathLike[str]") -> None:
        """Writes what it knows to a file, which is there whole or not at all."""
        import cloudpickle

        path = os.fspath(checkpoint_path)
        with open(f"{path}.tmp", "wb") as file:
            file.write(cloudpickle.dumps(self.get_state()))
        os.replace(f"{path}.tmp", path)

    def restore(self, checkpoint_path: "str | os.PathLike[str]") -> None:
        """Goes on from what `save` wrote."""
        import pickle

        with open(checkpoint_path, "rb") as file:
            self.set_state(pickle.load(file))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """`save` to the file of this session in a directory."""
        self.save(os.path.join(checkpoint_dir, self.CKPT_FILE_TMPL.format(session_str)))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """`restore` from the newest file in a directory."""
        before, after = self.CKPT_FILE_TMPL.split("{}")
        names = [name for name in os.listdir(checkpoint_dir) if name.startswith(before) and name.endswith(after)]
        if not names:
            raise ConfigError(f"`{checkpoint_dir}` holds no saved searcher")
        paths = [os.path.join(checkpoint_dir, name) for name in names]
        self.restore(max(paths, key=lambda path: os.stat(path).st_mtime_ns))


def check_objective(owner: str, metric: Any, mode: Any) -> None:
    """A metric is a name and a mode "min" or "max", or both are lists of one length."""
    metrics = metric if isinstance(metric, (list, tuple)) else [] if metric is None else [metric]
    modes = mode if isinstance(mode, (list, tuple)) else [] if mode is None else [mode]
    for name in metrics:
        if not isinstance(name, str):
            raise ConfigTypeError(f"`metric` of `{owner}` is {kind_of(name)}: it must be a name")
    for value in modes:
        if value not in ("min", "max"):
            raise ConfigError(f"`mode` of `{owner}` is {value!r}: it must be 'min' or 'max'")
    if metrics and modes and len(metrics) != len(modes):
        raise ConfigError(f"`{owner}` has {len(metrics)} metrics and {len(modes)} modes: each metric needs a mode")


def agreed(owner: str, name: str, own: Any, told: Any) -> Any:
    """The searcher's own metric or mode, or else that of `TuneConfig`."""
    if own is not None and told is not None and own != told:
        raise ConfigError(
            f"`{name}` is {own!r} in `{owner}` and {told!r} in `TuneConfig`", hints=[f"give `{name}` in one of them"]
        )
    return told if own is None else own


def lookup(result: Mapping[str, Any], name: str) -> Any:
    """A metric by its flattened name, `a/b` for `{"a": {"b": …}}`; None where it is missing."""
    if name in result:
        return result[name]
    for at, letter in enumerate(name):
        inner = result.get(name[:at]) if letter == "/" else None
        if isinstance(inner, Mapping):
            found = lookup(inner, name[at + 1 :])
            if found is not None:
                return found
    return None


def measured(result: Mapping[str, Any] | None, metric: str) -> float | None:
    """A metric as a number; None where it is missing, no number, or not finite: such a trial failed."""
    value = None if result is None else lookup(result, metric)
    try:
        number = float(value) if value is not None and not isinstance(value, str) else None
    except (TypeError, ValueError):
        return None
    return number if number is not None and abs(number) != float("inf") and number == number else None
