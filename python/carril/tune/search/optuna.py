"""Optuna: its samplers, for one metric or several, and spaces that are functions.

A space may be that of `carril.tune`, a dict of Optuna's distributions, or a function of Optuna's trial that suggests and
may return constants.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.search._library import LibrarySearcher, imported, library
from carril.tune.search._tree import Parameter, Point, place, value_at
from carril.tune.search.sample import Categorical, Float, Integer, same
from carril.tune.search.searcher import lookup, measured

__all__ = ["OptunaSearch"]

_PLAIN = (type(None), bool, int, float, str)


class OptunaSearch(LibrarySearcher):
    """Optuna's search: TPE, or the `sampler` that is given. `metric` and `mode` may be lists.

    With `storage` (and `study_name`) the study is kept there as Optuna keeps it. `evaluated_rewards` are those of
    `points_to_evaluate`, which are then learnt from and not tried again.
    """

    conditional: ClassVar[bool] = True

    def __init__(
        self,
        space: dict[str, Any] | Sequence[Any] | Callable[[Any], dict[str, Any] | None] | None = None,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        optuna = library("OptunaSearch", "optuna", "optuna")
        super().__init__(space, metric, mode, points_to_evaluate, seed, evaluated_rewards)
        if sampler is not None and not isinstance(sampler, optuna.samplers.BaseSampler):
            raise ConfigTypeError(f"`sampler` of `OptunaSearch` is {kind_of(sampler)}: it must be one of Optuna's")
        if sampler is not None and seed is not None:
            raise ConfigError("`OptunaSearch` was given `sampler` and `seed`", hints=["give the seed to the sampler"])
        self._sampler = sampler
        self._study_name = study_name
        self._storage = storage
        self._study: Any = None
        self._trials: dict[str, Any] = {}
        self._results: dict[str, dict[str, Any]] = {}
        if self._tree is None and space is not None and not callable(space):
            _check_distributions(space)

    def _begin(self) -> None:
        optuna = imported("optuna")

        # A study in memory is nobody else's: what it says of each trial is said by us.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Those that run keep apart: a constant liar.
        sampler = self._sampler or optuna.samplers.TPESampler(seed=self._seed, constant_liar=True)
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=sampler,
            study_name=self._study_name,
            directions=[{"min": "minimize", "max": "maximize"}[mode] for mode in _listed(self._mode)],
            load_if_exists=True,
        )

    def suggest(self, trial_id: str) -> Any:
        self._start()
        point = self._points.pop(0) if self._points else Point()
        if not point.learnable:
            return self._evaluate(trial_id, point)
        if point.values:
            self._study.enqueue_trial(self._in_study(point.values))
        if self._tree is not None:
            trial = self._study.ask()
            config = self._tree.make(lambda parameter: _suggested(trial, parameter), point.overrides)
        elif callable(self._space):
            trial = self._study.ask()
            constants = self._space(trial) or {}
            config = {**trial.params, **constants}
        else:
            trial = self._study.ask(fixed_distributions=dict(self._space))
            config = dict(trial.params)
        self._trials[trial_id] = trial
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id not in self._trials:
            return
        self._results[trial_id] = {metric: lookup(result, metric) for metric in _listed(self._metric)}
        value = measured(result, _listed(self._metric)[0])
        step = result.get("training_iteration")
        # Optuna keeps the values on the way of one metric only.
        if isinstance(self._metric, str) and value is not None and isinstance(step, int):
            self._trials[trial_id].report(value, step)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._live.pop(trial_id, None)
        trial = self._trials.pop(trial_id, None)
        last = self._results.pop(trial_id, None)
        if trial is None:
            return
        values = [measured(last if result is None else result, metric) for metric in _listed(self._metric)]
        if error or None in values:
            self._study.tell(trial, state=_state("FAIL"))
        else:
            self._study.tell(trial, values)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        optuna = imported("optuna")

        self._start()
        values = [float(number) for number in _listed(value)]
        failed = error or any(number != number or abs(number) == float("inf") for number in values)
        params, distributions = self._known(parameters)
        trial = optuna.trial.create_trial(
            state=_state("FAIL" if failed else "PRUNED" if pruned else "COMPLETE"),
            values=None if failed or pruned else values,
            params=params,
            distributions=distributions,
            intermediate_values=dict(enumerate(intermediate_values or [])),
        )
        self._study.add_trial(trial)

    def _known(self, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was measured before, as the study has it, with the distributions."""
        if callable(self._space):
            raise ConfigError(
                "a space that is a function has no distributions: nothing that was measured before can be learnt from",
                hints=["give `space` as a dict"],
            )
        if self._tree is None:
            missing = next((name for name in self._space if name not in parameters), None)
            values, distributions = {name: parameters[name] for name in self._space if name in parameters}, self._space
        else:
            read = self._tree.read(parameters)
            missing, values = self._tree.missing(read), self._in_study(read)
            distributions = {p.name: _distribution(p) for p in self._tree.parameters if p.name in read}
        if missing is not None:
            raise ConfigError(f"a point that was measured before has no valid `{missing}`: {parameters!r}")
        return values, dict(distributions)

    def _in_study(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if self._tree is None:
            return dict(values)
        return {p.name: _to_study(p, values[p.name]) for p in self._tree.parameters if p.name in values}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _state(name: str) -> Any:
    optuna = imported("optuna")

    return optuna.trial.TrialState[name]


def _check_distributions(space: Any) -> None:
    optuna = imported("optuna")

    if not isinstance(space, Mapping):
        raise ConfigTypeError(
            f"`space` of `OptunaSearch` is {kind_of(space)}: it must be a dict or a function of Optuna's trial"
        )
    for name, value in space.items():
        if not isinstance(value, optuna.distributions.BaseDistribution):
            raise ConfigTypeError(
                f"`{name}` in `space` of `OptunaSearch` is {kind_of(value)}: it must be one of Optuna's distributions",
                hints=["constants go into `param_space`, or beside `carril.tune.uniform(…)` and the like"],
            )


def _choices(parameter: Parameter) -> list[Any]:
    """The options themselves where Optuna can show them, otherwise their numbers."""
    options = parameter.domain.categories
    texts = {(type(option), repr(option)) for option in options}
    plain = all(isinstance(option, _PLAIN) for option in options) and len({str(text) for _, text in texts}) == len(
        options
    )
    return list(options) if plain else list(range(len(options)))


def _distribution(parameter: Parameter) -> Any:
    distributions = imported("optuna.distributions")

    domain = parameter.domain
    if isinstance(domain, Categorical):
        return distributions.CategoricalDistribution(_choices(parameter))
    if isinstance(domain, Integer):
        (first, last), step = domain.multiples(), domain.q or 1
        # Optuna has no steps on a logarithmic scale: they are rounded to.
        return distributions.IntDistribution(first * step, last * step, log=domain.log, step=1 if domain.log else step)
    if domain.distribution == "normal":
        return distributions.FloatDistribution(0.0, 1.0)
    if domain.q is not None and not domain.log:
        first, last = domain.multiples()
        return distributions.FloatDistribution(first * domain.q, last * domain.q, step=domain.q)
    return distributions.FloatDistribution(domain.lower, domain.upper, log=domain.log)


def _suggested(trial: Any, parameter: Parameter) -> Any:
    distribution, domain = _distribution(parameter), parameter.domain
    if isinstance(domain, Categorical):
        value = trial.suggest_categorical(parameter.name, distribution.choices)
        choices = list(distribution.choices)
        return next(at for at, other in enumerate(choices) if other is value or (same(other, value)))
    if isinstance(domain, Integer):
        value = trial.suggest_int(
            parameter.name, distribution.low, distribution.high, step=distribution.step, log=domain.log
        )
        return value // (domain.q or 1) * (domain.q or 1)
    value = trial.suggest_float(
        parameter.name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
    )
    return value_at(domain, value) if domain.distribution == "normal" else domain.rounded(value)


def _to_study(parameter: Parameter, value: Any) -> Any:
    if isinstance(parameter.domain, Categorical):
        return _choices(parameter)[value]
    if isinstance(parameter.domain, Float) and parameter.domain.distribution == "normal":
        return place(parameter.domain, value)
    return value
