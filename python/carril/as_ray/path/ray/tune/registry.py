"""`ray.tune.registry`: trainables by a name."""

from carril.as_ray import missing as _missing
from carril.tune import register_env, register_trainable

__all__ = ["register_env", "register_trainable"]

__getattr__ = _missing.attributes("ray.tune.registry", ("get_trainable_cls", "register_input"))
