"""`ray.tune.search.hebo`."""

from carril.tune.search.hebo import HEBOSearch

__all__ = ["HEBOSearch"]
