"""`ray.tune.suggest`: the older path of `ray.tune.search`."""

from carril.as_ray import missing as _missing
from carril.tune.search import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.suggest",
    (
        "SearchAlgorithm",
        "SearchGenerator",
        "dragonfly",
        "flaml",
        "sigopt",
        "skopt",
        "variant_generator",
    ),
    (
        "ax",
        "basic_variant",
        "bayesopt",
        "bohb",
        "hebo",
        "hyperopt",
        "nevergrad",
        "optuna",
        "repeater",
        "suggestion",
        "zoopt",
    ),
    source="carril.tune.search",
)
