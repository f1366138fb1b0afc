"""`ray.tune.trainable.util`."""

from carril.tune.trainable import with_parameters, with_resources

__all__ = ["with_parameters", "with_resources"]
