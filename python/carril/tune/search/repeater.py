"""Runs every suggestion several times and tells the searcher the mean: for metrics that chance moves.

REPEAT-1: a searcher sees one trial for each suggestion, the first of its repeats, which ends when all of them have.
REPEAT-2: the mean is over the repeats that ended well; a suggestion failed when all of its repeats did.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.tune.search._native import checked_count, objective
from carril.tune.search._wrapper import Wrapper
from carril.tune.search.searcher import Searcher, measured

if TYPE_CHECKING:
    from carril.tune._space import Constants

__all__ = ["TRIAL_INDEX", "Repeater"]

# The key under which `set_index` puts the number of the repeat, from 0, into the config.
TRIAL_INDEX = "__trial_index__"


@dataclass
class _Group:
    config: dict[str, Any]
    trials: list[str] = field(default_factory=list)
    # What those that have ended measured; None is a failure.
    values: dict[str, float | None] = field(default_factory=dict)
    last: dict[str, float | None] = field(default_factory=dict)


class Repeater(Wrapper):
    """Each suggestion `repeat` times. `set_index=True` puts the number of the repeat into the config."""

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        self.repeat = checked_count("Repeater", "repeat", repeat, 1)
        self._set_index = bool(set_index)
        # Those of which not all repeats have ended; the newest, last, may have repeats to come.
        self._groups: list[_Group] = []

    def suggest(self, trial_id: str) -> Any:
        if not self._groups or len(self._groups[-1].trials) == self.repeat:
            suggestion = self.searcher.suggest(trial_id)
            if suggestion is None or suggestion == Searcher.FINISHED:
                return suggestion
            self._groups.append(_Group(suggestion))
        group = self._groups[-1]
        group.trials.append(trial_id)
        index = {TRIAL_INDEX: len(group.trials) - 1} if self._set_index else {}
        return {**group.config, **index}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        group = self._group_of(trial_id)
        if group is not None:
            group.last[trial_id] = measured(result, self._one_metric())

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        group = self._group_of(trial_id)
        if group is None:
            return
        value = group.last.get(trial_id) if result is None else measured(result, self._one_metric())
        group.values[trial_id] = None if error else value
        if len(group.values) == self.repeat:
            self._groups.remove(group)
            self._tell_mean(group)

    def _group_of(self, trial_id: str) -> _Group | None:
        groups = (group for group in self._groups if trial_id in group.trials and trial_id not in group.values)
        return next(groups, None)

    def _tell_mean(self, group: _Group) -> None:
        values = [value for value in group.values.values() if value is not None]
        if not values:
            self.searcher.on_trial_complete(group.trials[0], error=True)
        else:
            mean = {self._one_metric(): sum(values) / len(values)}
            self.searcher.on_trial_complete(group.trials[0], result=mean)

    def _one_metric(self) -> str:
        if not isinstance(self.metric, str):
            raise ConfigError(
                f"`Repeater` needs one metric of which it takes the mean, and has {self.metric!r}",
                hints=["give `metric` to the searcher in it or to `TuneConfig`"],
            )
        return self.metric

    def _spec(self, constants: "Constants") -> dict[str, Any]:
        spec = self._inner_spec(constants)
        options = {"searcher": spec, "repeat": self.repeat, "set_index": self._set_index}
        return {"repeated": {**options, **objective("Repeater", self.metric, self.mode)}}
