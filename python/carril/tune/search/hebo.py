"""HEBO: Huawei's Bayesian optimisation, which allows for noise that differs from place to place.

A space may be that of `carril.tune` or HEBO's own `DesignSpace`. Numbers are searched in the unit interval, in which their
domains are uniform.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from carril.tune.search._library import Asked, LibrarySearcher, NumpySource, imported, library
from carril.tune.search._native import checked_count
from carril.tune.search._tree import place, value_at

__all__ = ["HEBOSearch"]


class HEBOSearch(LibrarySearcher):
    """At most `max_concurrent` trials at a time. What else is given goes to `hebo.optimizers.hebo.HEBO`.

    `evaluated_rewards` are those of `points_to_evaluate`, which are then learnt from and not tried again.
    """

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        random_state_seed: int | None = None,
        max_concurrent: int = 8,
        **kwargs: Any,
    ) -> None:
        library("HEBOSearch", "hebo", "HEBO 'GPy>=1.13'")
        super().__init__(space, metric, mode, points_to_evaluate, random_state_seed, evaluated_rewards)
        self._max_concurrent = checked_count("HEBOSearch", "max_concurrent", max_concurrent, 1)
        self._kwargs = kwargs
        self._numpy = NumpySource(self._seed)
        self._optimizer: Any = None
        if isinstance(space, dict) and self._tree is None:
            self._parameters()

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def _begin(self) -> None:
        space = self._space
        if self._tree is not None:
            space = (
                imported("hebo.design_space.design_space")
                .DesignSpace()
                .parse([_described(p.name, p.options) for p in self._tree.parameters])
            )
        seed = {} if self._seed is None else {"scramble_seed": self._seed % 2**31}
        with self._numpy():
            self._optimizer = imported("hebo.optimizers.hebo").HEBO(space=space, **{**seed, **self._kwargs})

    def _ask(self) -> Asked | None:
        if len(self._live) >= self._max_concurrent:
            return None
        with self._numpy():
            frame = self._optimizer.suggest(n_suggestions=1)
        raw = {name: _python(frame.iloc[0][name]) for name in frame.columns}
        if self._tree is None:
            return Asked(raw, raw)
        parameters = self._tree.parameters
        return Asked(
            raw, {p.name: int(raw[p.name]) if p.options else value_at(p.domain, raw[p.name]) for p in parameters}
        )

    def _put(self, values: dict[str, Any]) -> dict[str, Any]:
        if self._tree is None:
            return values
        parameters = self._tree.parameters
        return {p.name: values[p.name] if p.options else place(p.domain, values[p.name]) for p in parameters}

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        import numpy
        import pandas

        cost = self._loss_or_worst(loss)
        if cost is not None:
            with self._numpy():
                self._optimizer.observe(pandas.DataFrame([asked.handle]), numpy.array([[cost]]))


def _described(name: str, options: int) -> dict[str, Any]:
    if options:
        return {"name": name, "type": "cat", "categories": list(range(options))}
    return {"name": name, "type": "num", "lb": 0.0, "ub": 1.0}


def _python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
