"""A search space as a library sees it: a list of parameters by name, each a number or a choice of one option.

TREE-1: a parameter of an option that was not chosen does not exist, and nothing is learnt about it.
TREE-2: the values that were read from a config make the same config again.

A parameter is named by its path, `model/width`. Below a choice, the number of the option is part of the path, so that
parameters of different options never share a name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from carril.exceptions import ConfigError
from carril.tune._space import resolve, unresolved
from carril.tune.search._native import check_no_grid
from carril.tune.search.sample import Categorical, Domain, Float, Function, Integer, holds_domain, is_valid, same

Path = tuple[str, ...]

# The outermost places of a normal distribution: five standard deviations.
_TAIL = 3e-7


@dataclass(frozen=True)
class Parameter:
    """One number, or one choice, whose value is the number of the option."""

    name: str
    domain: Any
    # The choice and the option with which it exists, from the outermost on.
    conditions: tuple[tuple[str, int], ...] = ()

    @property
    def options(self) -> int:
        """Of a choice, how many there are; 0 for a number."""
        return len(self.domain.categories) if isinstance(self.domain, Categorical) else 0


@dataclass
class Point:
    """A config that the user wants evaluated: values of parameters, and what else is to be in its place."""

    values: dict[str, Any] = field(default_factory=dict)
    overrides: list[tuple[Path, Any]] = field(default_factory=list)
    # False: it says something that the space could not have given, so that a library cannot be told of it.
    learnable: bool = True


class Tree:
    """A space of `carril.tune`, for a library."""

    def __init__(self, owner: str, space: Mapping[str, Any], conditional: bool) -> None:
        check_no_grid(owner, space)
        self.space = space
        self.parameters: list[Parameter] = []
        self._by_path: dict[Path, Parameter] = {}
        self._collect(space, (), ())
        depending = next((parameter for parameter in self.parameters if parameter.conditions), None)
        if depending is not None and not conditional:
            raise ConfigError(
                f"`{owner}` cannot search `{depending.name}`, which exists only with one option of a `choice`",
                hints=["`TPESearch`, `OptunaSearch` and `HyperOptSearch` can"],
            )
        if not self.parameters:
            raise ConfigError(f"the search space of `{owner}` has nothing to draw", hints=["`uniform`, `choice` …"])

    def outline(self) -> list[tuple[Any, ...]]:
        """What a library knows of the space. Options may be any objects, which differ after a pickle: they are counted."""
        return [(p.name, p.conditions, p.options or repr(p.domain)) for p in self.parameters]

    def make(self, choose: Callable[[Parameter], Any], overrides: "list[tuple[Path, Any]] | None" = None) -> Any:
        """The config with these values; functions of `sample_from` are called last."""
        functions: list[Callable[..., Any]] = []
        config = self._make(self.space, (), choose, functions)
        for path, value in overrides or []:
            inner = config
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        return resolve(config, functions)

    def read(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a config, as far as it has the space's shape."""
        values: dict[str, Any] = {}
        self._read(self.space, config, (), values)
        return values

    def missing(self, values: Mapping[str, Any]) -> str | None:
        """The first parameter that exists with these values and has none."""
        for parameter in self.parameters:
            exists = all(values.get(name) == option for name, option in parameter.conditions)
            if exists and parameter.name not in values:
                return parameter.name
        return None

    def point(self, index: int, given: Mapping[str, Any]) -> Point:
        """One of `points_to_evaluate`; `a/b` reaches into dicts, as a dict does."""
        point = Point()
        for key, value in given.items():
            if not self._pin(self.space, (), key, value, point):
                raise ConfigError(f"`points_to_evaluate[{index}]` names `{key}`, which the search space does not have")
        return point

    def _pin(self, space: Any, path: Path, key: str, value: Any, point: Point) -> bool:
        if not isinstance(space, Mapping):
            return False
        if key not in space:
            cuts = (at for at, letter in enumerate(str(key)) if letter == "/" and key[:at] in space)
            return any(self._pin(space[key[:at]], (*path, key[:at]), key[at + 1 :], value, point) for at in cuts)
        child, path = space[key], (*path, key)
        if isinstance(child, Mapping) and isinstance(value, Mapping):
            return all(self._pin(child, path, inner, value[inner], point) for inner in value)
        read: dict[str, Any] = {}
        if self._read(child, value, path, read):
            point.values.update(read)
        else:
            point.overrides.append((path, value))
            point.learnable = point.learnable and not any(
                self._by_path[at] for at in self._by_path if at[: len(path)] == path
            )
        return True

    def _collect(self, space: Any, path: Path, conditions: tuple[tuple[str, int], ...]) -> None:
        if isinstance(space, (Float, Integer, Categorical)):
            name = "/".join(path)
            while any(name == parameter.name for parameter in self.parameters):
                name += "_"
            parameter = Parameter(name, space, conditions)
            self.parameters.append(parameter)
            self._by_path[path] = parameter
            if isinstance(space, Categorical):
                for index, option in enumerate(space.categories):
                    self._collect(option, (*path, str(index)), (*conditions, (name, index)))
        elif isinstance(space, Mapping):
            for key, inner in space.items():
                self._collect(inner, (*path, str(key)), conditions)
        elif isinstance(space, (list, tuple)):
            for index, inner in enumerate(space):
                self._collect(inner, (*path, str(index)), conditions)

    def _make(self, space: Any, path: Path, choose: Callable[[Parameter], Any], functions: list[Any]) -> Any:
        if isinstance(space, Function):
            functions.append(space.made)
            return unresolved(len(functions) - 1)
        if isinstance(space, Categorical):
            option = int(choose(self._by_path[path]))
            return self._make(space.categories[option], (*path, str(option)), choose, functions)
        if isinstance(space, Domain):
            return space.cast(choose(self._by_path[path]))
        if isinstance(space, Mapping) and (space is self.space or type(space) is dict or holds_domain(space)):
            return {key: self._make(inner, (*path, str(key)), choose, functions) for key, inner in space.items()}
        if isinstance(space, (list, tuple)) and holds_domain(space):
            return [self._make(inner, (*path, str(at)), choose, functions) for at, inner in enumerate(space)]
        return space

    def _read(self, space: Any, value: Any, path: Path, values: dict[str, Any]) -> bool:
        """Whether the space could have given the value; then its parameters are in `values`."""
        if isinstance(space, Function):
            return False
        if isinstance(space, Categorical):
            for index, option in enumerate(space.categories):
                if is_valid(option, value):
                    values[self._by_path[path].name] = index
                    self._read(option, value, (*path, str(index)), values)
                    return True
            return False
        if isinstance(space, Domain):
            if space.is_valid(value):
                values[self._by_path[path].name] = space.cast(value)
                return True
            return False
        if isinstance(space, Mapping) and isinstance(value, Mapping):
            inner = [self._read(space[key], value[key], (*path, str(key)), values) for key in space if key in value]
            return all(inner) and space.keys() == value.keys()
        if isinstance(space, (list, tuple)) and isinstance(value, (list, tuple)) and len(space) == len(value):
            pairs = enumerate(zip(space, value, strict=True))
            read = [self._read(inner, given, (*path, str(at)), values) for at, (inner, given) in pairs]
            return all(read)
        return same(space, value)


def place(domain: Any, value: float) -> float:
    """Where a number lies in the unit interval, in which the domain is uniform: for libraries that know no other."""
    if isinstance(domain, Float) and domain.distribution == "normal":
        return min(max(NormalDist(domain.mean, domain.sd).cdf(value), 0.0), 1.0)
    low, high = _stretch(domain)
    middle = value / (domain.q or 1) + 0.5 if _stepped(domain) else value
    if domain.log:
        from math import log

        middle, low, high = log(max(middle, low)), log(low), log(high)
    return min(max((middle - low) / (high - low), 0.0), 1.0)


def value_at(domain: Any, unit: float) -> Any:
    """The number at a place of the unit interval."""
    unit = min(max(float(unit), 0.0), 1.0)
    if isinstance(domain, Float) and domain.distribution == "normal":
        return domain.rounded(NormalDist(domain.mean, domain.sd).inv_cdf(min(max(unit, _TAIL), 1 - _TAIL)))
    low, high = _stretch(domain)
    if domain.log:
        from math import exp, log

        number = exp(log(low) + unit * (log(high) - log(low)))
    else:
        number = low + unit * (high - low)
    if isinstance(domain, Integer) or _stepped(domain):
        first, last = domain.multiples()
        number = min(max(int(number // 1), first), last) * (domain.q or 1)
        return number if isinstance(domain, Integer) else domain.rounded(number)
    return domain.rounded(min(max(number, domain.lower), domain.upper))


def _stepped(domain: Any) -> bool:
    """Whether each multiple has a share of its own: not on a logarithmic scale of fractions, which may begin below one."""
    return isinstance(domain, Integer) or (domain.q is not None and not domain.log)


def _stretch(domain: Any) -> tuple[float, float]:
    if not _stepped(domain):
        return domain.lower, domain.upper
    first, last = domain.multiples()
    return first, last + 1
