"""`ray.tune.search.basic_variant`."""

from carril.tune.search.basic_variant import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
