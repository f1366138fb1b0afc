"""Where the next configuration comes from.

`BasicVariantGenerator`, `TPESearch` and `GPSearch` are asked in the head, without Python. A user's own `Searcher`, and
those that stand for a library (`optuna.OptunaSearch` …), are asked in the driver. Each is loaded when it is first used.
"""

# Type checkers know this name. Importing it from `typing` would be most of the cost of importing this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from carril.tune.search.basic_variant import BasicVariantGenerator as BasicVariantGenerator
    from carril.tune.search.concurrency_limiter import ConcurrencyLimiter as ConcurrencyLimiter
    from carril.tune.search.gp import GPSearch as GPSearch
    from carril.tune.search.repeater import Repeater as Repeater
    from carril.tune.search.searcher import Searcher as Searcher
    from carril.tune.search.tpe import TPESearch as TPESearch

_MODULE_OF = {
    "BasicVariantGenerator": "basic_variant",
    "ConcurrencyLimiter": "concurrency_limiter",
    "GPSearch": "gp",
    "Repeater": "repeater",
    "Searcher": "searcher",
    "TPESearch": "tpe",
}

# By the name that `create_searcher` takes: the module and the class.
_SEARCHERS = {
    "ax": ("ax", "AxSearch"),
    "bayesopt": ("bayesopt", "BayesOptSearch"),
    "bohb": ("bohb", "TuneBOHB"),
    "gp": ("gp", "GPSearch"),
    "hebo": ("hebo", "HEBOSearch"),
    "hyperopt": ("hyperopt", "HyperOptSearch"),
    "nevergrad": ("nevergrad", "NevergradSearch"),
    "optuna": ("optuna", "OptunaSearch"),
    "random": ("basic_variant", "BasicVariantGenerator"),
    "tpe": ("tpe", "TPESearch"),
    "variant_generator": ("basic_variant", "BasicVariantGenerator"),
    "zoopt": ("zoopt", "ZOOptSearch"),
}

__all__ = [
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "GPSearch",
    "Repeater",
    "Searcher",
    "TPESearch",
    "create_searcher",
]


def create_searcher(search_alg: str, **kwargs: "Any") -> "Any":
    """The searcher of this name, with these arguments: `create_searcher("optuna", metric="loss", mode="min")`."""
    import importlib

    from carril.exceptions import ConfigError

    found = _SEARCHERS.get(str(search_alg).lower())
    if found is None:
        from carril._internal.near import near

        close = near(str(search_alg).lower(), _SEARCHERS)
        raise ConfigError(
            f"there is no searcher {search_alg!r}: it must be one of {', '.join(sorted(_SEARCHERS))}",
            hints=[f"did you mean {close!r}?"] if close is not None else [],
        )
    module, name = found
    return getattr(importlib.import_module(f"carril.tune.search.{module}"), name)(**kwargs)


def __getattr__(name: str) -> "Any":
    import importlib

    if name in _MODULE_OF:
        value: Any = getattr(importlib.import_module(f"carril.tune.search.{_MODULE_OF[name]}"), name)
    elif name == "sample" or any(name == module for module, _ in _SEARCHERS.values()):
        value = importlib.import_module(f"carril.tune.search.{name}")
    else:
        raise AttributeError(f"module 'carril.tune.search' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
