"""`ray.tune.suggest.basic_variant`: the older path."""

from carril.tune.search.basic_variant import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
