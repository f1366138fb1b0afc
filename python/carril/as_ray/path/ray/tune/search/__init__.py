"""`ray.tune.search`: carril's own searchers; those of other libraries are modules of their own."""

from carril.as_ray import missing as _missing
from carril.tune.search import __all__ as _names

__all__ = list(_names)

__getattr__ = _missing.attributes(
    "ray.tune.search",
    (
        "SearchAlgorithm",
        "SearchGenerator",
        "dragonfly",
        "flaml",
        "search_algorithm",
        "search_generator",
        "sigopt",
        "skopt",
        "variant_generator",
    ),
    (
        "ax",
        "basic_variant",
        "bayesopt",
        "bohb",
        "concurrency_limiter",
        "hebo",
        "hyperopt",
        "nevergrad",
        "optuna",
        "repeater",
        "sample",
        "searcher",
        "zoopt",
    ),
    source="carril.tune.search",
)
