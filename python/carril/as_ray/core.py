"""The functions of `ray` and `ray.util` that are not carril's own: `init`, and those of tasks, actors and objects.

Scripts import the latter without always using them, so they exist and raise when they are called.
"""

from typing import Any

from carril.as_ray import missing

remote = missing.function("ray.remote")
get = missing.function("ray.get")
put = missing.function("ray.put")
wait = missing.function("ray.wait")
kill = missing.function("ray.kill")
cancel = missing.function("ray.cancel")
method = missing.function("ray.method")
get_actor = missing.function("ray.get_actor")
get_runtime_context = missing.function("ray.get_runtime_context")
timeline = missing.function("ray.timeline")


class ObjectRef:
    """There for annotations. Nothing makes one yet."""

    is_missing = True

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        missing.raise_missing("ray.ObjectRef")


def init(address: str | None = None, **options: Any) -> Any:
    """`carril.init()`, which takes Ray's arguments. Without an address, `RAY_ADDRESS` is one."""
    import os

    import carril

    return carril.init(address or os.environ.get("RAY_ADDRESS") or None, **options)


def get_gpu_ids() -> list[int | str]:
    """The devices that this worker has been given, by number where they have one; none outside a worker."""
    from carril.train import _session

    session = _session.entered()
    devices = session.devices if session is not None else []
    return [int(name) if name.isdigit() else name for name in devices]


def get_node_ip_address() -> str:
    """The address of this process's node, as the head knows it; on one machine that is loopback."""
    import carril

    return str(carril.nodes()[0]["NodeManagerAddress"]) if carril.is_initialized() else "127.0.0.1"
