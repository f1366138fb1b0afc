"""The specification of a run, as the JSON that the head checks field by field on arrival.

It is made of the user's configuration and of what the driver is: its interpreter, path, directory and command line.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carril._internal.driver import absolute_path

if TYPE_CHECKING:
    from carril.train._config import RunConfig, ScalingConfig


def under_as_ray() -> bool:
    """True if this driver was started by `carril as-ray`, and does what Ray does where the two differ."""
    return os.environ.get("CARRIL_AS_RAY") == "1"


def default_name(function: object, trainer: str) -> str:
    """A name that no other run has: what runs, when, and a random end."""
    name = getattr(function, "__name__", "")
    base = name if name.isidentifier() else trainer
    return f"{base}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.urandom(3).hex()}"


def storage_path(run_config: "RunConfig") -> str:
    """The directory that runs are kept in, absolute."""
    from carril.train._checkpoint import local_path

    default = "~/ray_results" if under_as_ray() else "~/carril_results"
    return local_path(default if run_config.storage is None else run_config.storage, "storage_path")


def build(
    name: str,
    scaling_config: "ScalingConfig",
    run_config: "RunConfig",
    share_devices: bool,
    record: Mapping[str, Any],
) -> str:
    """The JSON for `Client.submit`."""
    resources = scaling_config.worker_resources
    return json.dumps(
        {
            "name": name,
            "storage_path": storage_path(run_config),
            "num_workers": scaling_config.num_workers,
            "resources_per_worker": resources,
            "worker": {"python": {"executable": sys.executable, "path": absolute_path()}},
            "working_directory": os.getcwd(),
            "metrics_reduce": run_config.metrics_reduce,
            "share_devices": share_devices,
            "on_existing": "reuse" if under_as_ray() else "refuse",
            "threads_per_worker": max(1.0, resources.get("CPU", 1.0)),
            "hang_timeout_s": run_config.hang_timeout,
            "record": json.dumps(record, default=_shown),
        }
    )


def record(
    function: object,
    trainer: str,
    scaling_config: "ScalingConfig",
    run_config: "RunConfig",
    backend_config: object,
) -> dict[str, Any]:
    """What was asked, for `run.json`: for people, and for whoever reads the directory later."""
    from carril._native import __version__

    return {
        "trainer": trainer,
        "function": getattr(function, "__qualname__", repr(function)),
        "scaling_config": _fields(scaling_config),
        "run_config": _fields(run_config),
        "backend_config": _fields(backend_config),
        "versions": {"carril": __version__, "python": sys.version.split()[0], **_imported_versions()},
        "python": sys.executable,
        "command_line": list(getattr(sys, "orig_argv", sys.argv)),
    }


def _imported_versions() -> dict[str, str]:
    """The versions of what the driver has imported, and of nothing that it has not."""
    versions = {}
    for name in ("torch", "numpy"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def _fields(config: object) -> dict[str, Any] | None:
    import dataclasses

    if not dataclasses.is_dataclass(config):
        return None
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    # Their values may be secrets, and the file is read by whoever may read the results.
    runtime_env = values.get("worker_runtime_env") or {}
    if runtime_env.get("env_vars"):
        values["worker_runtime_env"] = {**runtime_env, "env_vars": sorted(runtime_env["env_vars"])}
    return values


def _shown(value: object) -> Any:
    fields = _fields(value)
    if fields is not None:
        return fields
    return os.fspath(value) if isinstance(value, os.PathLike) else repr(value)
