"""The specification of a run, as the JSON that the head checks field by field on arrival.

It is made of the user's configuration and of what the driver is: its interpreter, path, directory and command line.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carril._internal import again
from carril._internal.driver import absolute_path
from carril._internal.generation import under_as_ray as under_as_ray
from carril.exceptions import ConfigError, kind_of

if TYPE_CHECKING:
    from carril._native import Client
    from carril.train._config import FailureConfig, RunConfig, ScalingConfig

# Failures of machines that a run survives, where the user has said nothing.
_OF_MACHINES = 3


def default_name(function: object, trainer: str) -> str:
    """A name that no other run has: what runs, when, and a random end. A run that is resumed keeps the one it had."""
    name = getattr(function, "__name__", "")
    base = name if name.isidentifier() else trainer
    return again.name_for(function, trainer, f"{base}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.urandom(3).hex()}")


def storage_path(run_config: "RunConfig") -> str:
    """Where runs are kept: an absolute path, a URI, or a path in the `storage_filesystem`."""
    from carril.train._locations import location, path_in_filesystem

    default = "~/ray_results" if under_as_ray() else "~/carril_results"
    storage = default if run_config.storage is None else run_config.storage
    if storage_filesystem(run_config) is None:
        return location(storage, "storage_path")
    return path_in_filesystem(storage, "storage_path")


def storage_filesystem(run_config: "RunConfig") -> Any:
    """The object that reaches the storage; None for a path or URI, and for an object that only says that it is local."""
    from carril.train._locations import checked_filesystem

    return checked_filesystem(run_config.storage_filesystem, "RunConfig.storage_filesystem")


def filesystem(run_config: "RunConfig", client: "Client") -> dict[str, Any] | None:
    """How an agent opens the `storage_filesystem`: the pickled object, and the interpreter that understands it."""
    given = storage_filesystem(run_config)
    if given is None:
        return None
    from carril._internal.pickling import dumps

    try:
        data = dumps(given)
    except Exception as error:
        raise ConfigError(
            f"`storage_filesystem`, {kind_of(given)}, cannot be sent to the workers: {type(error).__name__}: {error}"
        ) from error
    return {"executable": sys.executable, "path": absolute_path(), "pickle": client.put_blob(data)}


def build(
    name: str,
    scaling_config: "ScalingConfig",
    run_config: "RunConfig",
    share_devices: bool,
    record: Mapping[str, Any],
    filesystem: Mapping[str, Any] | None,
    continues: str | None,
    validation: str | None,
    head_panic: str | None = None,
    data: Mapping[str, str] | None = None,
) -> str:
    """The JSON for `Client.submit`. `continues` is the run that a lost head had, and that goes on.

    `head_panic` is how that head panicked, where it did; `validation` is the blob of what checks checkpoints. `data` says in
    words which rows the data sets have.
    """
    from carril.train._locations import joined

    resources, retention = scaling_config.worker_resources, run_config.checkpoint_config
    storage = storage_path(run_config)
    is_meant = filesystem is None and again.begins(joined(storage, name))
    return json.dumps(
        {
            "name": name,
            "storage_path": storage,
            "filesystem": filesystem,
            "num_workers": scaling_config.num_workers,
            "resources_per_worker": resources,
            "worker": {"python": {"executable": sys.executable, "path": absolute_path()}},
            "working_directory": os.getcwd(),
            "metrics_reduce": run_config.metrics_reduce,
            "share_devices": share_devices,
            "num_to_keep": retention.num_to_keep,
            "checkpoint_score_attribute": retention.checkpoint_score_attribute,
            "checkpoint_score_order": retention.checkpoint_score_order,
            # Of a run that has finished. One that has not goes on in any case.
            "on_existing": "reuse" if run_config.resume or under_as_ray() else "refuse",
            # Who says that the run is to resume means it with what is given now.
            "other_config": "warn" if run_config.resume or under_as_ray() or is_meant else "refuse",
            # Ray takes an empty directory, and of two files under one name the one that comes last.
            "checkpoint_files": "lenient" if under_as_ray() else "strict",
            "data": dict(data or {}),
            "threads_per_worker": max(1.0, resources.get("CPU", 1.0)),
            "hang_timeout_s": run_config.hang_timeout,
            "failures": _failures(run_config.failure_config),
            "preemption_grace_s": float(run_config.failure_config.preemption_grace_s),
            "continues": continues,
            "head_panic": head_panic,
            "validation": validation,
            # A run inside a trial draws on what that one has.
            "parent": os.environ.get("CARRIL_PARENT"),
            "record": json.dumps({**record, "made_up_name": again.of_name(name)}, default=_shown),
        }
    )


def _failures(config: "FailureConfig") -> dict[str, Any]:
    own = config.max_infrastructure_failures
    return {
        "max_failures": config.max_failures,
        # As in Ray there is one number for all failures, unless the script gives the second one.
        "max_infrastructure_failures": _OF_MACHINES if own is None and not under_as_ray() else own,
        "fail_fast": bool(config.fail_fast),
    }


def record(
    function: object,
    trainer: str,
    scaling_config: "ScalingConfig",
    run_config: "RunConfig",
    backend_config: object,
    kept: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What was asked, for `run.json`: for people, for `carril resume`, and for whoever reads the directory later.

    `kept` are the blobs that the head puts beside it as files, by name.
    """
    from carril._native import __version__

    return {
        "trainer": trainer,
        "function": getattr(function, "__qualname__", repr(function)),
        "scaling_config": _fields(scaling_config),
        "run_config": _fields(run_config),
        "backend_config": _fields(backend_config),
        "versions": {"carril": __version__, "python": sys.version.split()[0], **_imported_versions()},
        **again.how_started(),
        "kept": dict(kept or {}),
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
    # The same: some file systems show their keys in their `repr`.
    if values.get("storage_filesystem") is not None:
        kind = type(values["storage_filesystem"])
        values["storage_filesystem"] = f"{kind.__module__}.{kind.__qualname__}"
    return values


def _shown(value: object) -> Any:
    fields = _fields(value)
    if fields is not None:
        return fields
    return os.fspath(value) if isinstance(value, os.PathLike) else repr(value)
