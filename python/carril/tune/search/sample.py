"""What a search space is made of: `uniform`, `choice`, `grid_search` and their kin, and the classes behind them.

SPACE-1: every sample of a domain is valid in it.
SPACE-2: a domain that cannot be sampled cannot be made: the line that makes it is the one that the error points to.

Upper bounds are exclusive, and inclusive where a step `q` is given; whole numbers with `q=1` are those without. The
search itself draws in the head; `sample` is for scripts that want a value at once.
"""

import copy
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from carril.exceptions import ConfigError, ConfigTypeError, kind_of

__all__ = [
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Integer",
    "choice",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]

GRID = "grid_search"

# How far a quotient may be from a whole number and still be one: 0.3 / 0.1 is not 3.
_NEARLY = 1e-9


class Domain:
    """Where one parameter is drawn from."""

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """One value, or a list of `size`. `random_state`: a seed, a `random.Random` or a generator of numpy."""
        source = random_source(random_state)
        return self._draw(source, config) if size == 1 else [self._draw(source, config) for _ in range(size)]

    def is_valid(self, value: Any) -> bool:
        """Whether the value could have been drawn from here."""
        raise NotImplementedError

    def cast(self, value: Any) -> Any:
        return value

    def is_grid(self) -> bool:
        return False

    def is_function(self) -> bool:
        return False

    @property
    def domain_str(self) -> str:
        return repr(self)

    def _draw(self, source: Any, config: Any) -> Any:
        raise NotImplementedError


class _Number(Domain):
    """Numbers between bounds. `q` is the step, None for no step."""

    kinds: ClassVar[dict[str, str]]

    def __init__(self, lower: Any, upper: Any) -> None:
        self.lower = lower
        self.upper = upper
        self.distribution = "uniform"
        self.q: Any = None

    @property
    def log(self) -> bool:
        return self.distribution == "loguniform"

    @property
    def name(self) -> str:
        """The function that makes such a domain: `quniform`."""
        return ("" if self.q is None else "q") + self.kinds[self.distribution]

    @property
    def arguments(self) -> list[Any]:
        """What that function is given."""
        return [self.lower, self.upper, *([] if self.q is None else [self.q])]

    def multiples(self) -> tuple[int, int]:
        """The first and the last multiple of the step, as counts of it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"

    def _with(self, **changes: Any) -> Self:
        changed = copy.copy(self)
        vars(changed).update(changes)
        changed.check()
        return changed

    def check(self) -> None:
        """Raises what is wrong with it (SPACE-2)."""
        if not self.lower < self.upper:
            raise ConfigError(
                f"the lower bound {self.lower} of `{self.name}` is not below the upper bound {self.upper}"
            )
        if self.log:
            _check_positive(self.name, "lower", self.lower)
        if self.q is not None:
            _check_positive(self.name, "q", self.q)
            first, last = self.multiples()
            if first > last:
                raise ConfigError(
                    f"no multiple of `q={self.q}` of `{self.name}` lies between {self.lower} and {self.upper}"
                )


class Float(_Number):
    """Numbers with a fraction: uniform, log-uniform or normal."""

    kinds: ClassVar[dict[str, str]] = {"uniform": "uniform", "loguniform": "loguniform", "normal": "randn"}

    def __init__(self, lower: float | None, upper: float | None) -> None:
        low = -math.inf if lower is None else _real("uniform", "lower", lower)
        high = math.inf if upper is None else _real("uniform", "upper", upper)
        super().__init__(low, high)
        self.mean = 0.0
        self.sd = 1.0

    @property
    def arguments(self) -> list[Any]:
        if self.distribution != "normal":
            return super().arguments
        return [self.mean, self.sd, *([] if self.q is None else [self.q])]

    def uniform(self) -> "Float":
        return self._with(distribution="uniform")

    def loguniform(self, base: float = 10) -> "Float":
        """The base changes nothing but the unit of the logarithm, and is taken for older scripts."""
        return self._with(distribution="loguniform")

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> "Float":
        return self._with(distribution="normal", mean=_real("randn", "mean", mean), sd=_real("randn", "sd", sd))

    def quantized(self, q: float) -> "Float":
        return self._with(q=_real(self.kinds[self.distribution], "q", q))

    def cast(self, value: Any) -> float:
        return float(value)

    def is_valid(self, value: Any) -> bool:
        if not _is_number(value) or not math.isfinite(value):
            return False
        in_bounds = self.distribution == "normal" or self.lower <= value <= self.upper
        return in_bounds and (self.q is None or _is_whole(value / self.q))

    def multiples(self) -> tuple[int, int]:
        low, high = self.lower / self.q, self.upper / self.q
        first = round(low) if _is_whole(low) else math.ceil(low)
        return first, round(high) if _is_whole(high) else math.floor(high)

    def rounded(self, value: float) -> float:
        """The multiple of the step that is nearest, within the bounds."""
        if self.q is None:
            return value
        index = round(value / self.q)
        if self.distribution == "normal":
            return float(index * self.q)
        first, last = self.multiples()
        return float(min(max(min(max(index, first), last) * self.q, self.lower), self.upper))

    def check(self) -> None:
        if self.distribution == "normal":
            if (self.lower, self.upper) != (-math.inf, math.inf):
                raise ConfigError(f"a normal distribution has no bounds, and this one has {self.lower}, {self.upper}")
            _check_finite("randn", "mean", self.mean)
            _check_positive("randn", "sd", self.sd)
            if self.q is not None:
                _check_positive("qrandn", "q", self.q)
            return
        for name, value in (("lower", self.lower), ("upper", self.upper), ("upper - lower", self.upper - self.lower)):
            _check_finite(self.name, name, value)
        super().check()
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            if self.q is not None and not _is_whole(value / self.q):
                raise ConfigError(f"the {name} bound {value} of `{self.name}` is no multiple of `q={self.q}`")

    def _draw(self, source: Any, config: Any) -> float:
        self.check()
        if self.distribution == "normal":
            return self.rounded(source.gauss(self.mean, self.sd))
        if self.log:
            value = math.exp(source.uniform(math.log(self.lower), math.log(self.upper)))
        elif self.q is not None:
            # Each multiple as likely as the others, the outermost too.
            value = source.randint(*self.multiples()) * self.q
        else:
            value = source.uniform(self.lower, self.upper)
        if self.q is not None:
            return self.rounded(value)
        return float(min(max(value, self.lower), math.nextafter(self.upper, self.lower)))


class Integer(_Number):
    """Whole numbers: each as likely as the others, or less likely the larger it is."""

    kinds: ClassVar[dict[str, str]] = {"uniform": "randint", "loguniform": "lograndint"}

    def __init__(self, lower: int, upper: int) -> None:
        super().__init__(_whole("randint", "lower", lower), _whole("randint", "upper", upper))
        self.check()

    def uniform(self) -> "Integer":
        return self._with(distribution="uniform")

    def loguniform(self, base: float = 10) -> "Integer":
        """The base changes nothing but the unit of the logarithm, and is taken for older scripts."""
        return self._with(distribution="loguniform")

    def quantized(self, q: int) -> "Integer":
        return self._with(q=_whole(self.kinds[self.distribution], "q", q))

    def cast(self, value: Any) -> int:
        return int(value)

    def is_valid(self, value: Any) -> bool:
        if not _is_number(value) or not math.isfinite(value) or value != int(value):
            return False
        first, last = self.multiples()
        step = self.q or 1
        return bool(value % step == 0 and first <= value // step <= last)

    def multiples(self) -> tuple[int, int]:
        step = self.q or 1
        return -(-self.lower // step), self.upper - 1 if step == 1 else self.upper // step

    def _draw(self, source: Any, config: Any) -> int:
        (first, last), step = self.multiples(), self.q or 1
        if self.log:
            index = math.floor(math.exp(source.uniform(math.log(first), math.log(last + 1))))
            return int(min(max(index, first), last) * step)
        return int(source.randint(first, last) * step)


class Categorical(Domain):
    """Each of the categories as likely as the others. One may be a space of its own, drawn when it is chosen."""

    def __init__(self, categories: Sequence[Any]) -> None:
        self.categories = _options("choice", categories)
        for index, category in enumerate(self.categories):
            path = path_of_grid(category)
            if path is not None:
                where = "/".join([str(index), *path])
                raise ConfigError(
                    f"the option `{where}` of `choice` is a `grid_search`, which cannot depend on chance",
                    hints=["put the `grid_search` outside, or write `choice` inside"],
                )

    def uniform(self) -> "Categorical":
        return self

    def grid(self) -> dict[str, list[Any]]:
        return grid_search(self.categories)

    def is_valid(self, value: Any) -> bool:
        return any(is_valid(category, value) for category in self.categories)

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]

    def __repr__(self) -> str:
        return f"choice({self.categories!r})"

    def _draw(self, source: Any, config: Any) -> Any:
        return draw(self.categories[source.randrange(len(self.categories))], source, config)


class Function(Domain):
    """A function of the user, called for each trial when the rest of its config is known."""

    def __init__(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise ConfigTypeError(f"`sample_from` was given {kind_of(func)}: it must be a function of the config")
        self.func = func

    def made(self, config: Any, source: Any = None) -> Any:
        """What the function says, drawn where that is a domain."""
        value = self.func(config) if _takes_config(self.func) else self.func()
        return value.sample(config, random_state=source) if isinstance(value, Domain) else value

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    def __repr__(self) -> str:
        return f"sample_from({getattr(self.func, '__name__', self.func)!s})"

    def _draw(self, source: Any, config: Any) -> Any:
        return self.made({} if config is None else config, source)


def _takes_config(function: Callable[..., Any]) -> bool:
    import inspect

    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # it wants an argument, or is a function in C that does not tell
        return True
    # One whose arguments all have defaults may be meant either way: it is given the config.
    return bool(inspect.signature(function).parameters)


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of the values, with every one of the other grids."""
    return {GRID: _options("grid_search", values)}


def choice(categories: Iterable[Any]) -> Categorical:
    """One of these."""
    return Categorical(_options("choice", categories))


def uniform(lower: float, upper: float) -> Float:
    """A number from `lower` up to, not including, `upper`."""
    return _float("uniform", lower, upper)


def quniform(lower: float, upper: float, q: float) -> Float:
    """A multiple of `q` from `lower` to `upper`, both included."""
    return _float("quniform", lower, upper, q)


def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """A number whose logarithm is uniform."""
    return _float("loguniform", lower, upper)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """A number whose logarithm is uniform, rounded to a multiple of `q`."""
    return _float("qloguniform", lower, upper, q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """A number from a normal distribution."""
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """A number from a normal distribution, rounded to a multiple of `q`."""
    return Float(None, None).normal(mean, sd).quantized(q)


def randint(lower: int, upper: int) -> Integer:
    """A whole number from `lower` up to, not including, `upper`."""
    return _integer("randint", lower, upper)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of `q` from `lower` to `upper`, both included; with `q=1` as `randint`."""
    return _integer("qrandint", lower, upper, q)


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """A whole number whose logarithm is uniform, `upper` not included."""
    return _integer("lograndint", lower, upper)


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """A multiple of `q` whose logarithm is uniform, both bounds included; with `q=1` as `lograndint`."""
    return _integer("qlograndint", lower, upper, q)


def sample_from(func: Callable[..., Any]) -> Function:
    """What the function returns for the rest of the config: `lambda spec: spec.config.width * 2`."""
    return Function(func)


def is_grid(value: Any) -> bool:
    """Whether this is what `grid_search` returns, or the same written by hand."""
    return isinstance(value, dict) and len(value) == 1 and GRID in value


def path_of_grid(value: Any) -> list[str] | None:
    """Where the first grid in a space is; the empty path is the space itself."""
    if is_grid(value):
        return []
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    for key, inner in items:
        path = path_of_grid(inner)
        if path is not None:
            return [str(key), *path]
    return None


def draw(value: Any, source: Any, config: Any = None) -> Any:
    """A space with every domain drawn."""
    if isinstance(value, Domain):
        return value._draw(source, config)
    if isinstance(value, Mapping):
        return {key: draw(inner, source, config) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and any(holds_domain(inner) for inner in value):
        return [draw(inner, source, config) for inner in value]
    return value


def holds_domain(value: Any) -> bool:
    """Whether anything in this is drawn, or is a grid."""
    if isinstance(value, Domain) or is_grid(value):
        return True
    if isinstance(value, Mapping):
        return any(map(holds_domain, value.values()))
    return isinstance(value, (list, tuple)) and any(map(holds_domain, value))


def is_valid(space: Any, value: Any) -> bool:
    """Whether the space could have given the value."""
    if isinstance(space, Domain):
        return space.is_valid(value)
    if isinstance(space, Mapping) and holds_domain(space):
        same_keys = isinstance(value, Mapping) and space.keys() == value.keys()
        return same_keys and all(is_valid(inner, value[key]) for key, inner in space.items())
    if isinstance(space, (list, tuple)) and holds_domain(space):
        same_length = isinstance(value, (list, tuple)) and len(space) == len(value)
        return same_length and all(map(is_valid, space, value))
    return same(space, value)


def same(left: Any, right: Any) -> bool:
    """Constants are compared as the user would: NaN is NaN, True is not 1, and an array has no truth."""
    if left is right:
        return True
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    try:
        return bool(left == right) or bool(left != left and right != right)
    except Exception:
        return False


def random_source(state: Any) -> Any:
    """What `random` offers, from a seed, from a generator of `random` or of numpy, or from `random` itself."""
    if state is None or isinstance(state, random.Random):
        return random if state is None else state
    for name in ("integers", "randint"):  # numpy's Generator, numpy's RandomState
        if hasattr(state, name):
            return random.Random(int(getattr(state, name)(0, 2**31)))
    return random.Random(_whole("sample", "random_state", state))


def _float(name: str, lower: Any, upper: Any, q: Any = None) -> Float:
    made = Float(_real(name, "lower", lower), _real(name, "upper", upper))
    distribution = "loguniform" if "log" in name else "uniform"
    return made._with(distribution=distribution, q=None if q is None else _real(name, "q", q))


def _integer(name: str, lower: Any, upper: Any, q: Any = None) -> Integer:
    # Not by way of `Integer(…)`: its errors name another function.
    made = Integer.__new__(Integer)
    _Number.__init__(made, _whole(name, "lower", lower), _whole(name, "upper", upper))
    distribution = "loguniform" if "log" in name else "uniform"
    return made._with(distribution=distribution, q=None if q is None else _whole(name, "q", q))


def _options(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ConfigTypeError(f"`{name}` was given {kind_of(values)}: it must be a list of values to choose from")
    # Of an array of numpy, Python's own numbers.
    options = list(values.tolist()) if hasattr(values, "tolist") else list(values)
    if not options:
        raise ConfigError(f"`{name}` has nothing to choose from")
    return options


def _is_number(value: Any) -> bool:
    # By what it can do, because numpy's numbers are of none of Python's classes.
    return not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__") and not hasattr(value, "__len__")


def _real(domain: str, name: str, value: Any) -> float:
    if not _is_number(value):
        raise ConfigTypeError(f"`{name}` of `{domain}` is {value!r}: it must be a number")
    return float(value)


def _whole(domain: str, name: str, value: Any) -> int:
    if not _is_number(value) or not math.isfinite(value) or value != int(value):
        raise ConfigTypeError(f"`{name}` of `{domain}` is {value!r}: it must be a whole number")
    if not -(2**63) <= int(value) < 2**63:
        raise ConfigError(f"`{name}` of `{domain}` is {value!r}, which has more than 64 bits")
    return int(value)


def _is_whole(quotient: float) -> bool:
    return abs(quotient - round(quotient)) <= _NEARLY * max(abs(quotient), 1.0)


def _check_finite(domain: str, name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ConfigError(f"`{name}` of `{domain}` is {value}, which is not a finite number")


def _check_positive(domain: str, name: str, value: float) -> None:
    _check_finite(domain, name, value)
    if value <= 0:
        raise ConfigError(f"`{name}` of `{domain}` is {value}, and has to be above 0")
