"""ZOOpt: search by classification, which draws from where good configs are separated from bad ones.

A space may be that of `carril.tune` or a dict of ZOOpt's dimensions. Numbers are searched in the unit interval, in which their
domains are uniform.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from carril.exceptions import ConfigError
from carril.tune.search._library import Asked, LibrarySearcher, NumpySource, imported, library
from carril.tune.search._native import checked_count
from carril.tune.search._tree import place, value_at

__all__ = ["ZOOptSearch"]

_PRECISION = 1e-10


class ZOOptSearch(LibrarySearcher):
    """`budget` is the number of trials that ZOOpt plans for, `parallel_num` how many run at a time.

    `dim_dict` is the space. What else is given goes to `zoopt.Parameter`; `seed` makes it repeatable.
    """

    def __init__(
        self,
        algo: str = "asracos",
        budget: int | None = None,
        dim_dict: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parallel_num: int = 1,
        **kwargs: Any,
    ) -> None:
        library("ZOOptSearch", "zoopt", "zoopt")
        super().__init__(dim_dict, metric, mode, points_to_evaluate, kwargs.pop("seed", None))
        if str(algo).lower() not in ("asracos", "sracos"):
            raise ConfigError(f"`algo` of `ZOOptSearch` is {algo!r}: it must be 'asracos' or 'sracos'")
        if budget is None:
            raise ConfigError("`ZOOptSearch` needs a `budget`", hints=["the number of trials, as `num_samples`"])
        self._budget = checked_count("ZOOptSearch", "budget", budget, 1)
        self._parallel = checked_count("ZOOptSearch", "parallel_num", parallel_num, 1)
        self._kwargs = kwargs
        self._numpy = NumpySource(self._seed)
        self._names: list[str] = []
        self._optimizer: Any = None

    @property
    def optimizer(self) -> Any:
        """The library's own object."""
        return self._optimizer

    def _begin(self) -> None:
        zoopt = imported("zoopt")
        dimensions = dict(self._space)
        if self._tree is not None:
            number = (zoopt.ValueType.CONTINUOUS, [0.0, 1.0], _PRECISION)
            grid = zoopt.ValueType.GRID
            dimensions = {
                p.name: (grid, list(range(p.options))) if p.options else number for p in self._tree.parameters
            }
        self._names = list(dimensions)
        with self._numpy():
            self._optimizer = imported("zoopt.algos.opt_algorithms.racos.sracos").SRacosTune(
                dimension=zoopt.Dimension2(list(dimensions.values())),
                parameter=zoopt.Parameter(budget=self._budget, **self._kwargs),
                parallel_num=self._parallel,
            )

    def _ask(self) -> Any:
        with self._numpy():
            solution = self._optimizer.suggest()
            if solution is None and not self._live:
                # It waits for the first ones to end, and does not see that they have.
                self._optimizer.semaphore = 1
                solution = self._optimizer.suggest()
        if solution is None or solution == self.FINISHED:
            return solution
        raw = dict(zip(self._names, solution.get_x(), strict=True))
        if self._tree is None:
            return Asked(solution, raw)
        parameters = self._tree.parameters
        return Asked(
            solution, {p.name: int(raw[p.name]) if p.options else value_at(p.domain, raw[p.name]) for p in parameters}
        )

    def _put(self, values: dict[str, Any]) -> Any:
        raw = values
        if self._tree is not None:
            raw = {
                p.name: values[p.name] if p.options else place(p.domain, values[p.name]) for p in self._tree.parameters
            }
        # Counted as one that ZOOpt suggested itself, because it counts those that end.
        self._optimizer.init_num += 1
        self._optimizer.live_num += 1
        return self._optimizer.get_objective().construct_solution([raw[name] for name in self._names])

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        # It only compares, and waits for each of its first suggestions to end: a failure is reported too.
        with self._numpy():
            self._optimizer.complete(asked.handle, math.inf if loss is None else loss)
