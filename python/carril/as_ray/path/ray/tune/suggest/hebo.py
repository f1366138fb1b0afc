"""`ray.tune.suggest.hebo`: the older path."""

from carril.tune.search.hebo import HEBOSearch

__all__ = ["HEBOSearch"]
