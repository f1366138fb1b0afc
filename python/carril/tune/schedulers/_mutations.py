"""What population-based training may change in a config, read from the user's `hyperparam_mutations`.

A list is an order of choices, a domain is drawn from and kept to, a dict is a part of the config, and a function is
asked in the driver. All is checked when the scheduler is made; the native description follows when it is sent.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of

if TYPE_CHECKING:
    from carril.tune._space import Constants

Path = tuple[str, ...]


def functions_in(mutations: Mapping[str, Any], above: Path = ()) -> dict[Path, Callable[[], Any]]:
    """The user's functions by their places in the config. Refuses what is no mutation."""
    found: dict[Path, Callable[[], Any]] = {}
    for key, value in mutations.items():
        if not isinstance(key, str):
            raise ConfigTypeError(f"`hyperparam_mutations` has the key {key!r}: it must be the name of a parameter")
        path = (*above, key)
        if isinstance(value, Mapping):
            _check_part(path, value)
            found.update(functions_in(value, path))
        elif isinstance(value, (list, tuple, range)):
            if not value:
                raise ConfigError(f"`hyperparam_mutations` has {_shown(path)} with an empty list of values")
        elif _is_function(value):
            found[path] = value.sample if _is_domain(value) else value
        elif _is_domain(value):
            _check_domain(value)
        else:
            raise ConfigTypeError(
                f"`hyperparam_mutations` has {_shown(path)} with {kind_of(value)}: "
                "it must be a list, a domain such as `tune.uniform(0, 1)`, a function or a dict of these"
            )
    return found


def encode(mutations: Mapping[str, Any], constants: "Constants") -> list[list[Any]]:
    """The native description of mutations that were checked before."""
    return [[key, _encode(value, constants)] for key, value in mutations.items()]


def _encode(value: Any, constants: "Constants") -> Any:
    if isinstance(value, Mapping):
        return {"map": encode(value, constants)}
    if isinstance(value, (list, tuple, range)):
        return {"choices": [constants.add(item) for item in value]}
    if _is_function(value):
        return "ask"
    from carril.tune._space import encode_node

    return {"domain": encode_node(value, constants)}


def _check_part(path: Path, part: Mapping[str, Any]) -> None:
    if "grid_search" in part:
        raise ConfigError(
            f"`hyperparam_mutations` has {_shown(path)} with a `grid_search`", hints=["give the list of values itself"]
        )
    if not part:
        raise ConfigError(f"`hyperparam_mutations` has {_shown(path)} with an empty dict")


def _check_domain(domain: Any) -> None:
    from carril.tune._space import Constants, encode_node

    encode_node(domain, Constants())


def _is_domain(value: object) -> bool:
    from carril.tune._space import Domain

    return isinstance(value, Domain)


def _is_function(value: object) -> bool:
    from carril.tune._space import Function

    return isinstance(value, Function) or (callable(value) and not _is_domain(value))


def _shown(path: Path) -> str:
    return f"`{'/'.join(path)}`"
