"""BayesOpt (the package `bayesian-optimization`, its first and its third generation): a Gaussian process over numbers.

Every number is searched in the unit interval, in which its domain is uniform, so that logarithmic scales and whole numbers
are what they are to the process too.
"""

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from carril.exceptions import ConfigError
from carril.tune.search._library import Asked, LibrarySearcher, imported, library
from carril.tune.search._native import checked_count
from carril.tune.search._tree import Parameter, place, value_at
from carril.tune.search.sample import uniform
from carril.tune.search.searcher import Searcher

__all__ = ["BayesOptSearch"]


class BayesOptSearch(LibrarySearcher):
    """A search for numbers; a space may also be a dict of bounds, `{"x": (0, 1)}`.

    `random_search_steps` random configs come first. `utility_kwargs` choose the acquisition: `kind` ("ucb", "ei" or "poi"),
    `kappa`, `xi`. A config that was suggested before waits for another result, and after `patience` of them in a row the
    search is finished; with `skip_duplicate=False` it is tried again.
    """

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: dict[str, Any] | None = None,
        random_state: int = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
    ) -> None:
        library("BayesOptSearch", "bayes_opt", "bayesian-optimization")
        super().__init__(_as_space(space), metric, mode, points_to_evaluate, random_state)
        self._utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, **(utility_kwargs or {})}
        if self._utility["kind"] not in ("ucb", "ei", "poi"):
            raise ConfigError(f"`utility_kwargs['kind']` is {self._utility['kind']!r}: it must be 'ucb', 'ei' or 'poi'")
        self._random_steps = checked_count("BayesOptSearch", "random_search_steps", random_search_steps, 0)
        self._patience = checked_count("BayesOptSearch", "patience", patience, 1)
        self._skip_duplicate = skip_duplicate
        self._precision = repeat_float_precision
        self._verbose = verbose
        self._analysis = analysis
        self._optimizer: Any = None
        self._seen: set[tuple[float, ...]] = set()
        self._repeats = 0
        if self._tree is not None:
            _check_numbers(self._tree.parameters)

    @property
    def optimizer(self) -> Any:
        """The library's own object."""
        return self._optimizer

    def _begin(self) -> None:
        bayes_opt = imported("bayes_opt")

        _check_numbers(self._parameters())
        options: dict[str, Any] = (
            {} if hasattr(bayes_opt, "UtilityFunction") else {"acquisition_function": self._acquisition()}
        )
        self._optimizer = bayes_opt.BayesianOptimization(
            f=None,
            pbounds={parameter.name: (0.0, 1.0) for parameter in self._parameters()},
            random_state=None if self._seed is None else self._seed % 2**32,
            verbose=self._verbose,
            allow_duplicate_points=True,
            **options,
        )
        self._started = True
        if self._analysis is not None:
            self.add_evaluated_trials(self._analysis, self._one_metric())

    def _acquisition(self) -> Any:
        acquisition = imported("bayes_opt").acquisition

        seed = None if self._seed is None else self._seed % 2**32
        # The third generation has no default for `xi`, and wants one above 0 to look further than the best.
        if self._utility["kind"] == "ucb":
            return acquisition.UpperConfidenceBound(kappa=self._utility["kappa"], random_state=seed)
        cls = acquisition.ExpectedImprovement if self._utility["kind"] == "ei" else acquisition.ProbabilityOfImprovement
        return cls(xi=self._utility["xi"], random_state=seed)

    def _ask(self) -> Any:
        if self._random_steps > 0:
            self._random_steps -= 1
            return self._asked({parameter.name: self._random.random() for parameter in self._parameters()})
        units = self._proposed()
        if self._skip_duplicate and self._key(units) in self._seen:
            self._repeats += 1
            if self._repeats > self._patience:
                return Searcher.FINISHED
            if self._live:
                return None
            units = {parameter.name: self._random.random() for parameter in self._parameters()}
        else:
            self._repeats = 0
        return self._asked(units)

    def _proposed(self) -> dict[str, float]:
        bayes_opt = imported("bayes_opt")

        with warnings.catch_warnings():
            # What scikit-learn says of a fit that could be closer.
            warnings.simplefilter("ignore")
            if not hasattr(bayes_opt, "UtilityFunction"):
                proposed = self._optimizer.suggest()
            else:
                proposed = self._optimizer.suggest(bayes_opt.UtilityFunction(**self._utility))
        return {name: float(unit) for name, unit in proposed.items()}

    def _asked(self, units: dict[str, float]) -> Asked:
        self._seen.add(self._key(units))
        return Asked(units, {p.name: value_at(p.domain, units[p.name]) for p in self._parameters()})

    def _key(self, units: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(round(units[parameter.name], self._precision) for parameter in self._parameters())

    def _put(self, values: dict[str, Any]) -> dict[str, float]:
        return {p.name: place(p.domain, values[p.name]) for p in self._parameters()}

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        cost = self._loss_or_worst(loss)
        if cost is not None:
            # Where the config really was: a whole number lies in the middle of what is rounded to it.
            params = self._put(asked.values)
            # It prints a line for each config that was measured twice.
            with contextlib.redirect_stdout(io.StringIO()) if self._verbose == 0 else contextlib.nullcontext():
                self._optimizer.register(params=params, target=-cost)


def _as_space(space: Any) -> Any:
    """Bounds as BayesOpt takes them are a uniform space."""
    if not isinstance(space, Mapping):
        return space
    pairs = {key: value for key, value in space.items() if isinstance(value, (tuple, list)) and len(value) == 2}
    numbers = {key for key, value in pairs.items() if all(isinstance(bound, (int, float)) for bound in value)}
    return {key: uniform(*value) if key in numbers else value for key, value in space.items()}


def _check_numbers(parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        if parameter.options:
            raise ConfigError(
                f"`BayesOptSearch` searches numbers, and `{parameter.name}` is a `choice`",
                hints=["`TPESearch`, `OptunaSearch` and `HyperOptSearch` take both"],
            )
