"""The name `ray`, standing for carril under `carril as-ray`.

Everything here is carril's own under Ray's names, of both generations; what carril does not have yet raises carril's
`NotAvailableError`. `import ray` loads none of `ray.train`, `ray.air` and the others: scripts that name them import
them, and whether `ray.air` is loaded decides which generation's `Result` a script gets.
"""

import sys as _sys
from typing import Any as _Any

# The version whose names and behaviour are followed. The command `ray` reads it from this line.
__version__ = "2.60.0"

try:
    import carril as _carril
except ModuleNotFoundError as _error:
    if _error.name != "carril":
        raise
    raise ImportError(
        f"`ray` stands for carril here, and `{_sys.executable}` has no carril\n"
        f"hint: install it into that environment: `{_sys.executable} -m pip install carril`"
    ) from None

from carril.as_ray import check as _check
from carril.as_ray import missing as _missing

_check.refuse_real_ray()
_missing.install_finder()

__all__ = [
    "ObjectRef",
    "__version__",
    "available_resources",
    "cancel",
    "cluster_resources",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]

_TASKS = "tasks, actors and objects come later; this version trains: see `ray.train`"

remote = _missing.function("ray.remote", _TASKS)
get = _missing.function("ray.get", _TASKS)
put = _missing.function("ray.put", _TASKS)
wait = _missing.function("ray.wait", _TASKS)
kill = _missing.function("ray.kill", _TASKS)
cancel = _missing.function("ray.cancel", _TASKS)
method = _missing.function("ray.method", _TASKS)
get_actor = _missing.function("ray.get_actor", _TASKS)
get_gpu_ids = _missing.function("ray.get_gpu_ids", "in a worker, `ray.train.torch.get_devices()` names its devices")
get_runtime_context = _missing.function("ray.get_runtime_context", "in a worker, see `ray.train.get_context()`")
timeline = _missing.function("ray.timeline", _TASKS)


class ObjectRef:
    """There for annotations. Nothing makes one yet."""

    def __init__(self, *_args: _Any, **_kwargs: _Any) -> None:
        _missing.raise_missing("ray.ObjectRef", _TASKS)


def init(address: str | None = None, **options: _Any) -> _Any:
    """`carril.init()`, which takes Ray's arguments. Without an address, `RAY_ADDRESS` is one."""
    import os

    return _carril.init(address or os.environ.get("RAY_ADDRESS") or None, **options)


_FROM_CARRIL = frozenset(("available_resources", "cluster_resources", "is_initialized", "nodes", "shutdown"))
_MODULES = ("air", "data", "exceptions", "train", "tune", "util")
_LATER = (
    "ActorClassID",
    "ActorID",
    "ClientBuilder",
    "FunctionID",
    "JobID",
    "Language",
    "LoggingConfig",
    "NodeID",
    "ObjectID",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "actor",
    "autoscaler",
    "client",
    "cpp_function",
    "dag",
    "experimental",
    "java_actor_class",
    "java_function",
    "job_submission",
    "llm",
    "rllib",
    "runtime_env",
    "serve",
    "widgets",
    "workflow",
)
_module_attribute = _missing.attributes("ray", _LATER, _MODULES)


def __getattr__(name: str) -> _Any:
    return getattr(_carril, name) if name in _FROM_CARRIL else _module_attribute(name)
