"""Ax: Meta's platform for adaptive experiments, with constraints on parameters and outcomes.

A space may be that of `carril.tune` or a list of parameters as `AxClient.create_experiment` takes it.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.search._library import Asked, LibrarySearcher, imported, library
from carril.tune.search._tree import Parameter, place, value_at
from carril.tune.search.sample import Categorical, Integer, same
from carril.tune.search.searcher import measured

__all__ = ["AxSearch"]


class AxSearch(LibrarySearcher):
    """Ax's own choice of strategy. What else is given goes to `AxClient`: `random_seed`, `enforce_sequential_optimization` …

    An `ax_client` with an experiment is used as it is; then there is no `space`.
    """

    def __init__(
        self,
        space: dict[str, Any] | list[dict[str, Any]] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        library("AxSearch", "ax", "ax-platform")
        super().__init__(space, metric, mode, points_to_evaluate, ax_kwargs.get("random_seed"))
        self._parameter_constraints = parameter_constraints
        self._outcome_constraints = outcome_constraints
        self._kwargs = ax_kwargs
        self._client = ax_client
        if ax_client is not None and _experiment(ax_client) is not None:
            if space is not None:
                raise ConfigError("`AxSearch` was given a `space`, and an `ax_client` whose experiment has one")
            self._space = []
        if ax_client is not None and ax_kwargs:
            raise ConfigError(
                f"`AxSearch` was given `ax_client` and {', '.join(sorted(ax_kwargs))}, which are for a new one"
            )
        if space is not None and self._tree is None and not isinstance(space, (list, tuple)):
            raise ConfigTypeError(
                f"`space` of `AxSearch` is {kind_of(space)} without anything to draw: it must be a dict with "
                "`carril.tune.uniform(…)` and the like, or a list of Ax's parameters"
            )

    def _begin(self) -> None:
        if self._client is None:
            self._client = imported("ax.service.ax_client").AxClient(
                **{"verbose_logging": False, "enforce_sequential_optimization": False, **self._kwargs}
            )
        if _experiment(self._client) is not None:
            return
        space = self._space if self._tree is None else [_described(p) for p in self._tree.parameters]
        self._client.create_experiment(
            name="carril",
            parameters=space,
            objectives={
                self._one_metric(): imported("ax.service.utils.instantiation").ObjectiveProperties(
                    minimize=self._mode == "min"
                )
            },
            parameter_constraints=self._parameter_constraints,
            outcome_constraints=self._outcome_constraints,
        )

    def _ask(self) -> Asked | None:
        needs_data = imported("ax.exceptions.core").DataRequiredError
        at_limit = imported("ax.exceptions.generation_strategy").MaxParallelismReachedException
        try:
            with warnings.catch_warnings():
                # What BoTorch says of how it optimises.
                warnings.simplefilter("ignore")
                raw, number = self._client.get_next_trial()
        except (needs_data, at_limit):
            if self._live:
                return None
            raise
        if self._tree is None:
            return Asked(number, dict(raw))
        return Asked(number, {p.name: _value(p, raw[p.name]) for p in self._tree.parameters})

    def _put(self, values: dict[str, Any]) -> int:
        raw = values
        if self._tree is not None:
            raw = {p.name: _to_ax(p, values[p.name]) for p in self._tree.parameters}
        _, number = self._client.attach_trial(raw)
        return int(number)

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        if loss is None:
            self._client.log_trial_failure(trial_index=asked.handle)
            return
        # Outcome constraints are about other metrics.
        known = {name: measured(result, name) for name in _experiment(self._client).metrics}
        data = {name: value for name, value in known.items() if value is not None}
        self._client.complete_trial(trial_index=asked.handle, raw_data=data)


def _experiment(client: Any) -> Any:
    # The public name raises where there is none.
    return getattr(client, "_experiment", None)


def _by_place(domain: Any) -> bool:
    """What Ax has no name for is searched in the unit interval."""
    return not isinstance(domain, (Categorical, Integer)) and (domain.q is not None or domain.distribution == "normal")


def _choices(parameter: Parameter) -> list[Any]:
    """The options themselves where Ax can show them, otherwise their numbers."""
    options = parameter.domain.categories
    kinds = {type(option) for option in options}
    plain = len(kinds) == 1 and kinds <= {str, int, float, bool} and len(set(options)) == len(options)
    return list(options) if plain else list(range(len(options)))


def _described(parameter: Parameter) -> dict[str, Any]:
    domain, name = parameter.domain, parameter.name
    if isinstance(domain, Categorical):
        values = _choices(parameter)
        if len(values) == 1:
            return {"name": name, "type": "fixed", "value": values[0]}
        kind = type(values[0]).__name__
        options = {"value_type": kind, "is_ordered": False, "sort_values": False}
        return {"name": name, "type": "choice", "values": values, **options}
    if _by_place(domain):
        return {"name": name, "type": "range", "bounds": [0.0, 1.0], "value_type": "float"}
    if isinstance(domain, Integer):
        low, high = (count * (domain.q or 1) for count in domain.multiples())
        if low == high:
            return {"name": name, "type": "fixed", "value": low}
        return {"name": name, "type": "range", "bounds": [low, high], "value_type": "int", "log_scale": domain.log}
    bounds = [domain.lower, domain.upper]
    return {"name": name, "type": "range", "bounds": bounds, "value_type": "float", "log_scale": domain.log}


def _value(parameter: Parameter, raw: Any) -> Any:
    domain = parameter.domain
    if isinstance(domain, Categorical):
        return next(at for at, option in enumerate(_choices(parameter)) if same(option, raw))
    if _by_place(domain):
        return value_at(domain, raw)
    if isinstance(domain, Integer):
        return int(raw) // (domain.q or 1) * (domain.q or 1)
    return domain.rounded(float(raw))


def _to_ax(parameter: Parameter, value: Any) -> Any:
    if isinstance(parameter.domain, Categorical):
        return _choices(parameter)[value]
    return place(parameter.domain, value) if _by_place(parameter.domain) else value
