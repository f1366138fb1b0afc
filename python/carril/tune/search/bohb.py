"""BOHB: Parzen estimators that learn from trials of different lengths, for use with `HyperBandForBOHB`.

The model is HpBandSter's. Numbers are searched in the unit interval, in which their domains are uniform.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from carril.tune.search._library import Asked, LibrarySearcher, NumpySource, imported, library
from carril.tune.search._native import checked_count
from carril.tune.search._tree import Tree, place, value_at

__all__ = ["TuneBOHB"]


class TuneBOHB(LibrarySearcher):
    """A space may be that of `carril.tune` or a `ConfigSpace.ConfigurationSpace`.

    It learns from a trial whenever a scheduler pauses it, and when it ends; the budget is the number of its reports.
    `bohb_config` goes to HpBandSter's generator: `min_points_in_model`, `top_n_percent`, `num_samples` … With
    `max_concurrent=0` there is no limit.
    """

    conditional: ClassVar[bool] = True

    def __init__(
        self,
        space: Any = None,
        bohb_config: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        library("TuneBOHB", "ConfigSpace", "hpbandster ConfigSpace")
        library("TuneBOHB", "hpbandster", "hpbandster ConfigSpace")
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._bohb_config = dict(bohb_config or {})
        self._max_concurrent = checked_count("TuneBOHB", "max_concurrent", max_concurrent, 0)
        self._numpy = NumpySource(self._seed)
        self._generator: Any = None
        # Up to which budget paused trials were learnt from.
        self._told: dict[str, float] = {}
        if isinstance(space, dict) and self._tree is None:
            self._parameters()

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def on_pause(self, trial_id: str) -> None:
        """A rung of HyperBand: what the trial has reached is learnt."""
        asked, result = self._live.get(trial_id), self._last.get(trial_id)
        if asked is not None and result is not None:
            self._learn(asked, result, False)
            self._told[trial_id] = _budget(result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        told = self._told.pop(trial_id, None)
        last = self._last.get(trial_id, {}) if result is None else result
        if not error and told is not None and told == _budget(last):
            # It ended where it was paused.
            self._live.pop(trial_id, None)
            self._last.pop(trial_id, None)
        else:
            super().on_trial_complete(trial_id, result, error)

    def _begin(self) -> None:
        space = self._space if self._tree is None else _described(self._tree, self._seed)
        with self._quietly():
            self._generator = imported("hpbandster.optimizers.config_generators.bohb").BOHB(
                space, logger=logging.getLogger("hpbandster"), **self._bohb_config
            )

    def _ask(self) -> Asked | None:
        if 0 < self._max_concurrent <= len(self._live):
            return None
        with self._quietly():
            raw, _ = self._generator.get_config(None)
        if self._tree is None:
            return Asked(dict(raw), dict(raw))
        present = [p for p in self._tree.parameters if p.name in raw]
        values = {p.name: int(raw[p.name]) if p.options else value_at(p.domain, raw[p.name]) for p in present}
        return Asked(dict(raw), values)

    def _put(self, values: dict[str, Any]) -> dict[str, Any]:
        if self._tree is None:
            return values
        present = [p for p in self._tree.parameters if p.name in values]
        return {p.name: values[p.name] if p.options else place(p.domain, values[p.name]) for p in present}

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        # As HpBandSter's dispatcher would hand it over.
        job = SimpleNamespace(
            kwargs={"budget": _budget(result), "config": asked.handle},
            result=None if loss is None else {"loss": loss},
            exception=None,
            id=None,
        )
        with self._quietly():
            self._generator.new_result(job)

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """With random numbers of its own, and without what ConfigSpace says of names that HpBandSter still uses."""
        with warnings.catch_warnings(), self._numpy():
            warnings.simplefilter("ignore")
            yield


def _budget(result: Mapping[str, Any]) -> float:
    return float(result.get("training_iteration", 1))


def _described(tree: Tree, seed: int | None) -> Any:
    ConfigSpace = imported("ConfigSpace")
    space = ConfigSpace.ConfigurationSpace(seed=None if seed is None else seed % 2**32)
    made: dict[str, Any] = {}
    for p in tree.parameters:
        if p.options:
            made[p.name] = ConfigSpace.CategoricalHyperparameter(p.name, list(range(p.options)))
        else:
            made[p.name] = ConfigSpace.UniformFloatHyperparameter(p.name, 0.0, 1.0)
    space.add(list(made.values()))
    for p in tree.parameters:
        if p.conditions:
            # The innermost is enough: the choice that it names has conditions of its own.
            choice, option = p.conditions[-1]
            space.add(ConfigSpace.EqualsCondition(made[p.name], made[choice], option))
    return space
