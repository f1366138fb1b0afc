"""`ray.train.backend`: the base of the configurations of backends."""

from carril.train import BackendConfig

__all__ = ["BackendConfig"]
