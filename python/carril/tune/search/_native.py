"""What the searchers share that are asked in the head: here they are only their arguments."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of
from carril.tune.search.sample import holds_domain, path_of_grid
from carril.tune.search.searcher import Searcher, agreed


class NativeSearcher(Searcher):
    """A searcher of the head. `_space` is what it was given as `space`, which goes before that of the experiment."""

    # Whether it learns from a metric, and whether it can use a grid.
    learns: ClassVar[bool] = True

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(metric, mode)
        name = type(self).__name__
        if isinstance(metric, (list, tuple)):
            raise ConfigError(f"`{name}` has one metric, and was given {len(metric)}")
        if space is not None and not isinstance(space, Mapping):
            raise ConfigTypeError(f"`space` of `{name}` is {kind_of(space)}: it must be a dict of parameters by name")
        self._space = space
        self._points = checked_points(name, points_to_evaluate)
        self._seed = checked_seed(name, seed)
        self._check_grid(space or {})

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes the metric and the mode of `TuneConfig`. False: the space is there twice."""
        name = type(self).__name__
        self._metric = agreed(name, "metric", self._metric, metric)
        self._mode = agreed(name, "mode", self._mode, mode)
        self._check_grid(config)
        return self._space is None or not holds_domain(config)

    def suggest(self, trial_id: str) -> Any:
        raise NotAvailableError(
            f"`{type(self).__name__}` suggests in the head, and cannot be asked from Python",
            hints=["give it to `TuneConfig(search_alg=…)`, by itself or in a `ConcurrencyLimiter` or a `Repeater`"],
        )

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.suggest(trial_id)

    def _objective(self) -> dict[str, str]:
        return objective(type(self).__name__, self._metric, self._mode)

    def _check_grid(self, space: Mapping[str, Any]) -> None:
        if self.learns:
            check_no_grid(type(self).__name__, space)


def objective(owner: str, metric: Any, mode: Any) -> dict[str, str]:
    """The metric and the mode, both of which have to be known."""
    for name, value in (("metric", metric), ("mode", mode)):
        if value is None:
            raise ConfigError(
                f"`{owner}` does not know the `{name}`", hints=[f"give `{name}` to it or to `TuneConfig`"]
            )
    return {"metric": metric, "mode": mode}


def check_no_grid(owner: str, space: Mapping[str, Any]) -> None:
    """A searcher that learns goes where it wants: no grid is searched whole."""
    path = path_of_grid(space)
    if path is not None:
        raise ConfigError(
            f"`{owner}` cannot use the `grid_search` of `{'/'.join(path)}`",
            hints=["write `choice`, or leave out `search_alg` to try every value"],
        )


def checked_points(owner: str, points: Any) -> list[dict[str, Any]]:
    """`points_to_evaluate` as a list of dicts."""
    if points is None:
        return []
    if not isinstance(points, (list, tuple)):
        raise ConfigTypeError(f"`points_to_evaluate` of `{owner}` is {kind_of(points)}: it must be a list of configs")
    for index, point in enumerate(points):
        if not isinstance(point, Mapping):
            raise ConfigTypeError(
                f"`points_to_evaluate[{index}]` of `{owner}` is {kind_of(point)}: it must be a dict of values by name"
            )
    return [dict(point) for point in points]


def checked_seed(owner: str, seed: Any) -> int | None:
    """A seed as a number of 64 bits: a whole number, or one that a generator of numpy or of `random` gives."""
    if seed is None:
        return None
    for name, arguments in (("integers", (0, 2**31)), ("getrandbits", (31,)), ("randint", (0, 2**31))):
        if hasattr(seed, name):
            return int(getattr(seed, name)(*arguments))
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise ConfigTypeError(f"the seed of `{owner}` is {kind_of(seed)}: it must be a whole number or a generator")
    number = int(seed)
    if not 0 <= number < 2**64:
        raise ConfigError(f"the seed of `{owner}` is {number}: it must be from 0 to 2**64 - 1")
    return number


def checked_count(owner: str, name: str, value: Any, least: int) -> int:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigTypeError(f"`{name}` of `{owner}` is {kind_of(value)}: it must be a whole number")
    if int(value) < least:
        raise ConfigError(f"`{name}` of `{owner}` is {value}: it must be at least {least}")
    return int(value)
