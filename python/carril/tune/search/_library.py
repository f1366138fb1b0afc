"""What the searchers share that stand for a library: the space, the points to evaluate, and what runs.

LIB-1: a trial that failed, or whose metric is missing or not finite, is reported to the library as a failure, or as the worst seen so far
  where the library has no failures.
LIB-2: `points_to_evaluate` come first, in their order; what they leave out is drawn.
LIB-3: only what was suggested is learnt from: an event of another trial changes nothing.
LIB-4: what was saved goes on as if nothing had happened, the random numbers too.
"""

import contextlib
import importlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.search._native import checked_points, checked_seed, objective
from carril.tune.search._tree import Parameter, Point, Tree, value_at
from carril.tune.search.sample import Categorical, holds_domain
from carril.tune.search.searcher import Searcher, agreed, measured


class LibraryMissingError(ConfigError, ImportError):
    """The library of a searcher is not installed."""


def library(owner: str, name: str, package: str) -> Any:
    """The module of a library, or one error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name.partition(".")[0]:
            raise
        raise LibraryMissingError(
            f"`{owner}` needs the library `{name.partition('.')[0]}`, which is not installed",
            hints=[f"`pip install {package}`"],
        ) from None


def imported(name: str) -> Any:
    """A module of a library that was found at construction. Not an `import`: no type checker knows these libraries."""
    return importlib.import_module(name)


class Asked(NamedTuple):
    """A suggestion: what the library knows it by, and the values of its parameters by name."""

    handle: Any
    values: dict[str, Any]


class LibrarySearcher(Searcher):
    """A subclass says how its library is begun, asked and told; everything else is here."""

    # Whether the library can search parameters that exist only with one option of a choice.
    conditional: ClassVar[bool] = False

    # The space is that of an experiment: the next one, or the same that goes on, brings it again.
    _of_experiment: bool = False

    def __init__(
        self,
        space: Any,
        metric: Any,
        mode: Any,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        seed: Any = None,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        super().__init__(metric, mode)
        self._owner = type(self).__name__
        self._space = space
        self._tree: Tree | None = None
        self._given = checked_points(self._owner, points_to_evaluate)
        self._points: list[Point] = []
        self._seed = checked_seed(self._owner, seed)
        self._random = random.Random(self._seed)
        self._rewards = [] if evaluated_rewards is None else list(evaluated_rewards)
        if self._rewards and len(self._rewards) != len(self._given):
            raise ConfigError(
                f"`{self._owner}` has {len(self._given)} points to evaluate and {len(self._rewards)} rewards of them"
            )
        self._started = False
        # Trials that run, with what the library knows them by; None where it was not asked.
        self._live: dict[str, Asked | None] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._worst: float | None = None
        if isinstance(space, Mapping) and holds_domain(space):
            self._tree = Tree(self._owner, space, self.conditional)

    # What a subclass has.

    def _begin(self) -> None:
        """Makes the library's own objects; the space, the metric and the mode are known."""
        raise NotImplementedError

    def _ask(self) -> Any:
        """An `Asked`, None for not now, or FINISHED."""
        raise NotImplementedError

    def _put(self, values: dict[str, Any]) -> Any:
        """What the library is to know values by that it did not suggest."""
        raise NotImplementedError

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        """What became of it, the smaller the better; None is a failure. `result` is the last one."""
        raise NotImplementedError

    # What a trial's life calls.

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes over what `TuneConfig` and the experiment's space say. False: there are two spaces."""
        self._metric = agreed(self._owner, "metric", self._metric, metric)
        self._mode = agreed(self._owner, "mode", self._mode, mode)
        if self._space is not None and not self._of_experiment:
            return not holds_domain(config)
        tree = Tree(self._owner, config, self.conditional)
        if self._tree is not None and self._tree.outline() != tree.outline():
            raise ConfigError(
                f"this `{self._owner}` has searched another space, the `param_space` of an earlier tuner",
                hints=[f"make a new `{self._owner}` for each space"],
            )
        self._of_experiment, self._space, self._tree = True, config, tree
        self._start()
        return True

    def suggest(self, trial_id: str) -> Any:
        self._start()
        if self._points:
            return self._evaluate(trial_id, self._points.pop(0))
        asked = self._ask()
        if not isinstance(asked, Asked):
            return asked
        self._live[trial_id] = asked
        return self._config(asked.values)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._live:
            self._last[trial_id] = result

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self._live:
            return
        asked = self._live.pop(trial_id)
        last = self._last.pop(trial_id, {})
        if asked is not None:
            self._learn(asked, last if result is None else result, error)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        self._start()
        values = dict(parameters) if self._tree is None else self._tree.read(parameters)
        missing = None if self._tree is None else self._tree.missing(values)
        if missing is not None:
            raise ConfigError(f"a point that was measured before has no valid `{missing}`: {parameters!r}")
        self._learn(Asked(self._put(values), values), {self._one_metric(): value}, error)

    # What subclasses use.

    def _parameters(self) -> list[Parameter]:
        if self._tree is None:
            raise ConfigTypeError(
                f"`space` of `{self._owner}` is {kind_of(self._space)} without anything to draw",
                hints=["a dict with `carril.tune.uniform(…)` and the like is understood by every searcher"],
            )
        return self._tree.parameters

    def _draw(self, parameter: Parameter) -> Any:
        """A value by chance."""
        if isinstance(parameter.domain, Categorical):
            return self._random.randrange(parameter.options)
        return value_at(parameter.domain, self._random.random())

    def _loss_or_worst(self, loss: float | None) -> float | None:
        """For a library that has no failures (LIB-1). None: nothing was seen yet, and nothing can be said."""
        return self._worst if loss is None else loss

    def _one_metric(self) -> str:
        if not isinstance(self._metric, str):
            raise ConfigError(f"`{self._owner}` has one metric, and was given {self._metric!r}")
        return self._metric

    def _config(self, values: Mapping[str, Any]) -> Any:
        if self._tree is None:
            return dict(values)
        return self._tree.make(lambda parameter: values[parameter.name])

    def _start(self) -> None:
        if self._started:
            return
        if self._space is None:
            raise ConfigError(
                f"`{self._owner}` has no search space", hints=["give `space` to it or `param_space` to the `Tuner`"]
            )
        objective(self._owner, self._metric, self._mode)
        self._points = self._checked_points()
        self._begin()
        self._started = True
        for point, reward in zip(self._given, self._rewards, strict=False):
            self.add_evaluated_point(point, reward)

    def _checked_points(self) -> list[Point]:
        if self._rewards:
            return []
        if self._tree is None:
            return [Point(dict(point)) for point in self._given]
        return [self._tree.point(index, point) for index, point in enumerate(self._given)]

    def _evaluate(self, trial_id: str, point: Point) -> Any:
        values = dict(point.values)

        def choose(parameter: Parameter) -> Any:
            if parameter.name not in values:
                values[parameter.name] = self._draw(parameter)
            return values[parameter.name]

        config = dict(values) if self._tree is None else self._tree.make(choose, point.overrides)
        self._live[trial_id] = Asked(self._put(values), values) if point.learnable else None
        return config

    def _loss(self, result: Mapping[str, Any]) -> float | None:
        value = measured(result, self._one_metric())
        return value if value is None or self._mode == "min" else -value

    def _learn(self, asked: Asked, result: Mapping[str, Any], failed: bool) -> None:
        loss = None if failed else self._loss(result)
        self._tell(asked, loss, result)
        if loss is not None:
            self._worst = loss if self._worst is None else max(self._worst, loss)


class NumpySource:
    """Random numbers of its own for a library that draws from numpy's global generator."""

    def __init__(self, seed: int | None) -> None:
        import numpy

        self.state: Any = numpy.random.RandomState(None if seed is None else seed % 2**32).get_state()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        import numpy

        outside = numpy.random.get_state()
        numpy.random.set_state(self.state)
        try:
            yield
        finally:
            self.state = numpy.random.get_state()
            numpy.random.set_state(outside)
