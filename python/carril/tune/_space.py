"""A search space as the head reads it, and a config as the trial gets it.

A space is sent as a tree of JSON; what is a Python object stays behind and is known by its number. The head draws; what
only a function of the user can say comes back as a marker, and is put in here, in the driver.

ENCODE-1: a dict of text keys is a map, also without anything to draw in it; every other constant is one object as it
  was given: a list or a tuple without a domain, a dict of another class, or with keys that are no texts.
ENCODE-2: each function of `sample_from` is called once for a config, after those whose values it asks for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.search.sample import (
    GRID,
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    choice,
    grid_search,
    holds_domain,
    is_grid,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

__all__ = [
    "Categorical",
    "Constants",
    "Domain",
    "Encoded",
    "Float",
    "Function",
    "Integer",
    "choice",
    "encode_node",
    "encode_space",
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
    "resolve",
    "sample_from",
    "uniform",
    "unresolved",
]

# The key of the map that stands in a config where a function is still to be called; the head writes the same.
_UNRESOLVED = "__sample_from__"

_PLAIN = (type(None), bool, int, float, str, bytes)

Path = tuple[str, ...]


class Constants:
    """Python objects that the head knows by their numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        """The number of this object; equal plain ones share one."""
        if type(value) not in _PLAIN:
            self.values.append(value)
            return len(self.values) - 1
        # By its text too: 1 is not True, 0.0 is not -0.0, and NaN is itself.
        key = (type(value), repr(value)) if isinstance(value, float) else (type(value), value)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


class Encoded(NamedTuple):
    """A space: a tree of JSON, and the objects and functions that it names by number."""

    node: dict[str, Any]
    constants: list[Any]
    functions: list[Callable[..., Any]]


def encode_space(space: Mapping[str, Any], constants: Constants | None = None) -> Encoded:
    """The whole search space of an experiment. Objects are added to `constants`, where it is given."""
    if not isinstance(space, Mapping):
        raise ConfigTypeError(f"the search space is {kind_of(space)}: it must be a dict of parameters by name")
    constants = Constants() if constants is None else constants
    encoder = _Encoder(constants)
    try:
        node = encoder.map(space, ())
    except RecursionError:
        raise ConfigError("the search space is nested too deep, or holds itself") from None
    return Encoded(node, constants.values, encoder.functions)


def encode_node(value: Any, constants: Constants) -> dict[str, Any]:
    """One domain, or a tree of them, for those who draw without a config: `sample_from` has no place there."""
    encoder = _Encoder(constants)
    node = encoder.node(value, ())
    if encoder.functions:
        raise ConfigError("`sample_from` cannot be used here: there is no config that it could see")
    return node


class _Encoder:
    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.functions: list[Callable[..., Any]] = []

    def node(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, Domain):
            return self._domain(value, path)
        if is_grid(value):
            return self._grid(value[GRID], path)
        if type(value) is dict and value and all(type(key) is str for key in value):
            return self.map(value, path)
        if isinstance(value, Mapping) and holds_domain(value):
            return self.map(value, path)
        if isinstance(value, (list, tuple)) and holds_domain(value):
            return {"list": [self.node(inner, (*path, str(index))) for index, inner in enumerate(value)]}
        return {"constant": self.constants.add(value)}

    def map(self, value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        for key in value:
            if not isinstance(key, str):
                raise ConfigTypeError(
                    f"the key {key!r} in {_at(path)} is {kind_of(key)}: beside something to draw, keys must be texts"
                )
        return {"map": [[key, self.node(inner, (*path, key))] for key, inner in value.items()]}

    def _grid(self, values: Any, path: Path) -> dict[str, Any]:
        # Checked again: it may have been written by hand.
        try:
            options = grid_search(values)[GRID]
        except ConfigError as error:
            raise type(error)(f"{error.message}, at {_at(path)}") from None
        return {"grid": [self.node(option, path) for option in options]}

    def _domain(self, domain: Domain, path: Path) -> dict[str, Any]:
        if isinstance(domain, (Float, Integer)):
            try:
                domain.check()
            except ConfigError as error:
                raise type(error)(f"{error.message}, at {_at(path)}") from None
            return {domain.name: domain.arguments}
        if isinstance(domain, Categorical):
            return {"choice": [self.node(option, path) for option in domain.categories]}
        if isinstance(domain, Function):
            self.functions.append(domain.made)
            return {"unresolved": len(self.functions) - 1}
        raise ConfigTypeError(f"{_at(path)} is {kind_of(domain)}, a domain that the search does not know")


def constants_of(space: Mapping[str, Any]) -> dict[str, Any]:
    """What of a space is not drawn: a searcher that knows nothing of it need not repeat it."""
    kept: dict[str, Any] = {}
    for key, value in space.items():
        if isinstance(value, Domain) or is_grid(value) or (isinstance(value, (list, tuple)) and holds_domain(value)):
            continue
        constant = constants_of(value) if isinstance(value, dict) and value else value
        if constant is value or constant:
            kept[key] = constant
    return kept


def paths_of(config: Mapping[str, Any]) -> list[list[str]]:
    """Where a config has values."""
    paths: list[list[str]] = []
    for key, value in config.items():
        is_map = isinstance(value, dict) and all(isinstance(name, str) for name in value)  # ENCODE-1
        inner = paths_of(value) if is_map else [[]]
        paths.extend([str(key), *path] for path in inner)
    return paths


def _at(path: Path) -> str:
    return f"`{'/'.join(path)}`" if path else "the search space"


def unresolved(index: int) -> dict[str, int]:
    """What stands in a config for the function of this number until it has been called."""
    return {_UNRESOLVED: index}


def resolve(config: dict[str, Any], functions: Sequence[Callable[..., Any]]) -> dict[str, Any]:
    """The config with each marker replaced by what its function returns. What holds no marker is not copied."""
    places = list(_places(config, ())) if functions else []
    if not places:
        return config
    resolution = _Resolution(config, functions)
    for path in places:
        resolution.value_at(path)
    resolved = resolution.result(config, ())
    assert isinstance(resolved, dict)
    return resolved


def _index(value: Any) -> int | None:
    return value[_UNRESOLVED] if type(value) is dict and len(value) == 1 and _UNRESOLVED in value else None


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """What is in a dict or a list as the head makes them; anything else is the user's own."""
    if type(value) is dict:
        yield from value.items()
    elif type(value) is list:
        yield from enumerate(value)


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if _index(value) is not None:
        yield path
        return
    for key, inner in _items(value):
        yield from _places(inner, (*path, key))


class _Resolution:
    """One config on its way: a function is called when its value is first asked for, by whomever."""

    def __init__(self, config: dict[str, Any], functions: Sequence[Callable[..., Any]]) -> None:
        self.config = config
        self.functions = functions
        self.values: dict[tuple[Any, ...], Any] = {}
        # Those that are being called, outermost first.
        self.asking: list[tuple[Any, ...]] = []

    def value_at(self, path: tuple[Any, ...]) -> Any:
        if path in self.values:
            return self.values[path]
        if path in self.asking:
            names = [_at(tuple(map(str, other))) for other in [*self.asking[self.asking.index(path) :], path]]
            raise ConfigError(f"functions of `sample_from` need each other's values: {' needs '.join(names)}")
        value: Any = self.config
        for key in path:
            value = value[key]
        self.asking.append(path)
        try:
            made = self._call(self.functions[value[_UNRESOLVED]], _at(tuple(map(str, path))))
        finally:
            self.asking.pop()
        self.values[path] = _plain(made)
        return self.values[path]

    def _call(self, function: Callable[..., Any], name: str) -> Any:
        try:
            return function(_Spec(self))
        except _MissingKey as error:
            raise ConfigError(
                f"the function of `sample_from` for {name} asks for {error.place}, which the config does not have"
            ) from None
        except ConfigError:
            raise
        except Exception as error:
            error.add_note(f"raised by the function of `sample_from` for {name}")
            raise

    def result(self, value: Any, path: tuple[Any, ...]) -> Any:
        if path in self.values:
            return self.values[path]
        changed = {key: self.result(inner, (*path, key)) for key, inner in _items(value)}
        if all(changed[key] is inner for key, inner in _items(value)):
            return value
        return changed if isinstance(value, dict) else list(changed.values())


class _MissingKey(KeyError, AttributeError):
    """A key that the config does not have. Both classes, because it may be asked for in both ways."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class _View(Mapping[str, Any]):
    """A dict of the config as a function sees it: by key or by attribute, with no marker in sight."""

    __slots__ = ("_path", "_raw", "_resolution")

    def __init__(self, resolution: _Resolution, raw: dict[str, Any], path: tuple[Any, ...]) -> None:
        self._resolution = resolution
        self._raw = raw
        self._path = path

    def __getitem__(self, key: str) -> Any:
        if key not in self._raw:
            raise _MissingKey(_at(tuple(map(str, (*self._path, key)))))
        return _seen(self._resolution, self._raw[key], (*self._path, key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, key: object) -> bool:
        return key in self._raw

    def __repr__(self) -> str:
        return repr(self._raw)


class _Spec(_View):
    """The argument of the function: the config itself, which also has itself as `config`, as older scripts write."""

    __slots__ = ()

    def __init__(self, resolution: _Resolution) -> None:
        super().__init__(resolution, resolution.config, ())

    def __getitem__(self, key: str) -> Any:
        return _View(self._resolution, self._raw, ()) if key == "config" else super().__getitem__(key)


def _seen(resolution: _Resolution, value: Any, path: tuple[Any, ...]) -> Any:
    if _index(value) is not None:
        return resolution.value_at(path)
    if type(value) is dict:
        return _View(resolution, value, path)
    if type(value) is list:
        return [_seen(resolution, inner, (*path, index)) for index, inner in enumerate(value)]
    return value


def _plain(value: Any) -> Any:
    """What a function returned, where it may have returned a part of what it was shown."""
    if isinstance(value, _View):
        return {key: _plain(inner) for key, inner in value.items()}
    if type(value) is dict:
        return {key: _plain(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value
