"""The driver's one connection to a head: started by `init()`, implied by `fit()`, closed at exit.

With no address a private head-and-agent is started, which ends with this process. Under `carril as-ray` a head is
there already and `CARRIL_HEAD` names its socket. Nothing is decided here; calls go to the native client.

DRV-1: at most one client per process, whichever threads ask at once.
DRV-2: after a fork the child has no client and does not close its parent's.
"""

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from carril.exceptions import (
    ConfigError,
    ConfigTypeError,
    ConnectionLostError,
    NotAvailableError,
    kind_of,
    of_another_ray,
)

if TYPE_CHECKING:
    from types import TracebackType

    from carril._internal.import_hook import ImportNotes
    from carril._native import Client

_ADDRESS_HINT = "leave `address` out: a private head is started on this machine and ends with this process"


class Context:
    """What `init()` returns. As a context manager it calls `shutdown()` at the end."""

    dashboard_url: str | None = None

    def __init__(self, client: "Client") -> None:
        self.address_info: dict[str, Any] = {
            "address": client.socket,
            "node_ip_address": "127.0.0.1",
            "session_dir": client.directory,
            "webui_url": None,
        }

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __enter__(self) -> "Context":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        shutdown()

    def __repr__(self) -> str:
        return f"Context(address={self.address_info['address']!r})"


class _State:
    """The process-wide client and what `init()` was given for every run."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.client: Client | None = None
        # In a worker: the connection that only asks.
        self.asked: Client | None = None
        self.notes: ImportNotes | None = None
        self.environment: dict[str, str] = {}
        self.log_to_driver = True
        # What `init()` counts the machine as having.
        self.counts: tuple[float | None, float | None, dict[str, float] | None] = (None, None, None)


_state = _State()
_inherited: list[object] = []


def _forget_in_child() -> None:
    global _state
    # Kept referenced: dropping the handle would close, in the child, what belongs to the parent.
    _inherited.append(_state)
    if _state.notes is not None:
        _state.notes.remove()
    _state = _State()


os.register_at_fork(after_in_child=_forget_in_child)


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    include_dashboard: bool | None = None,
    dashboard_host: str = "127.0.0.1",
    dashboard_port: int | None = None,
    job_config: object = None,
    configure_logging: bool = True,
    logging_level: object = None,
    logging_format: str | None = None,
    logging_config: object = None,
    log_to_driver: bool = True,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    **private: Any,
) -> Context:
    """Starts a private head on this machine, or connects to the one that `carril as-ray` has started.

    `num_cpus`, `num_gpus` and `resources` say what the machine counts as having; by default that is what it has.
    The dashboard, logging, namespace and object store arguments of Ray are taken and have nothing to act on.
    A second call raises RuntimeError unless `ignore_reinit_error=True`.
    """
    _refuse_what_is_not_built(address, labels, local_mode, job_config, private)
    counts = _counts(num_cpus, num_gpus, resources)
    environment = environment_of(runtime_env, "runtime_env")
    with _state.lock:
        if _state.client is not None:
            if not ignore_reinit_error:
                raise RuntimeError(
                    "`carril.init()` was called before\n"
                    "hint: call `carril.shutdown()` first, or pass `ignore_reinit_error=True`"
                )
            return Context(_state.client)
        client = _start(address, *counts)
        _state.environment = environment
        _state.log_to_driver = log_to_driver
        return Context(client)


def _refuse_what_is_not_built(
    address: str | None, labels: object, local_mode: bool, job_config: object, private: dict[str, Any]
) -> None:
    for name in private:
        # Ray's own underscore arguments tune its processes, of which there are none.
        if not name.startswith("_"):
            raise ConfigTypeError(f"`init()` has no argument `{name}`", hints=of_another_ray("init", name))
    if address not in (None, "local", "auto"):
        raise NotAvailableError(f"`init(address={address!r})`: other hosts are not built yet", hints=[_ADDRESS_HINT])
    if address == "auto" and not os.environ.get("CARRIL_HEAD"):
        raise ConnectionError(f"`init(address='auto')`: no head is running here\nhint: {_ADDRESS_HINT}")
    if labels:
        raise NotAvailableError("`init(labels=…)`: labels of nodes are not built yet")
    if local_mode:
        raise NotAvailableError(
            "`init(local_mode=True)` is not available",
            hints=["`ScalingConfig(num_workers=0)` runs the function in this process"],
        )
    if job_config is not None:
        raise NotAvailableError("`init(job_config=…)` is not built yet")


def _counts(
    num_cpus: float | None, num_gpus: float | None, resources: dict[str, float] | None
) -> tuple[float | None, float | None, dict[str, float] | None]:
    given = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    for name, count in (resources or {}).items():
        if name in ("CPU", "GPU"):
            raise ConfigError(f"`resources` names `{name}`", hints=[f"use `num_{name.lower()}s`"])
        if not isinstance(name, str) or not name or "=" in name:
            raise ConfigError(f"`resources` names {name!r}: a name must be text, not empty, and without `=`")
        given[f"resources[{name!r}]"] = count
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"`{name}` is {value!r}: it must be a number")
        if value is not None and not 0 <= value < float("inf"):
            raise ConfigError(f"`{name}` is {value!r}: it must be a finite number that is not negative")
    return num_cpus, num_gpus, resources


def environment_of(runtime_env: object, where: str) -> dict[str, str]:
    """The variables of a runtime environment, of which nothing else is built."""
    if not runtime_env:
        return {}
    if not isinstance(runtime_env, dict):
        raise ConfigTypeError(f"`{where}` is {kind_of(runtime_env)}: it must be a dict")
    for key, value in runtime_env.items():
        here = key == "working_dir" and os.path.realpath(str(value)) == os.path.realpath(os.getcwd())
        if key != "env_vars" and value and not here:
            raise NotAvailableError(
                f"`{where}[{key!r}]` is not built yet",
                hints=["workers have the packages, path and directory of the driver; `env_vars` can be set"],
            )
    variables = runtime_env.get("env_vars") or {}
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigTypeError(f"`{where}['env_vars']` has {name!r}: {value!r}: names and values must be text")
    return dict(variables)


def _start(
    address: str | None, num_cpus: float | None, num_gpus: float | None, resources: dict[str, float] | None
) -> "Client":
    """Makes the client and tells its node what this driver has imported. The lock is held."""
    _check_directory()
    if sys.platform != "linux":
        raise NotAvailableError(f"carril runs on Linux, and this is {sys.platform}")
    from carril._native import Client

    _state.counts = (num_cpus, num_gpus, resources)
    head = os.environ.get("CARRIL_HEAD")
    # A head that is there already has its counts; a script that asks for its own gets a head of its own.
    asks = num_cpus is not None or num_gpus is not None or bool(resources)
    shared = head if address != "local" and not asks else None
    _state.client = client = Client.connect(shared) if shared else _start_private()
    import atexit

    atexit.register(shutdown)
    _prepare(client)
    return client


def _check_directory() -> None:
    """Workers begin in the driver's directory, and paths are taken from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ConfigError(
            "the working directory of this process has been deleted",
            hints=["change to one that is there before the script is started: `cd`, or `os.chdir(…)` in it"],
        ) from None


def _start_private() -> "Client":
    from carril._internal.command import find_command
    from carril._native import Client

    return Client.start_private(find_command(), *_state.counts)


def replace_lost(lost: "Client") -> "Client":
    """A new private head in the place of one that has died. Of several threads that ask, the first one starts it."""
    with _state.lock:
        if _state.client is None or _state.client is not lost:
            return ensure_client()
        if _state.notes is not None:
            _state.notes.remove()
        lost.shutdown()
        _state.client = client = _start_private()
        _prepare(client)
        return client


def explained(lost: ConnectionLostError, panic: str | None) -> ConnectionLostError:
    """The same, with the panic that the head has ended with as its cause."""
    if panic is None:
        return lost
    return ConnectionLostError(
        f"the head panicked at {panic}", hints=["this is a bug in carril: please report it with the run's `journal`"]
    ).with_traceback(lost.__traceback__)


def _prepare(client: "Client") -> None:
    from carril._internal.import_hook import ImportNotes
    from carril._internal.imports import imported_installed_modules

    script = getattr(sys.modules.get("__main__"), "__file__", None)
    executable = sys.executable
    client.prepare(
        executable, absolute_path(), imported_installed_modules(), os.path.abspath(script) if script else None
    )

    def send(names: list[str]) -> None:
        try:
            client.prepare(executable, absolute_path(), names)
        except Exception:
            # An import must not fail because a head is gone: the next call that needs the head says so.
            notes.remove()

    notes = ImportNotes(send)
    notes.install()
    _state.notes = notes


def absolute_path() -> list[str]:
    """This process's `sys.path` in a form that means the same in another directory."""
    return [os.path.abspath(entry) for entry in sys.path]


def ensure_client() -> "Client":
    """The client, started with defaults if `init()` was not called."""
    _check_directory()
    with _state.lock:
        client = _state.client
        if client is not None and not os.path.exists(client.directory):
            # Something has cleaned up the temporary files: that head can start nothing any more.
            return replace_lost(client)
        return client if client is not None else _start(None, None, None, None)


def current_client() -> "Client | None":
    """The client, if there is one now."""
    return _state.client


def flush_imports() -> None:
    """Passes on the last names of imports, before workers are asked for."""
    if _state.notes is not None:
        _state.notes.flush()


def worker_environment() -> dict[str, str]:
    """The variables that `init(runtime_env=…)` gave to every worker."""
    return dict(_state.environment)


def shows_output() -> bool:
    """False after `init(log_to_driver=False)`."""
    return _state.log_to_driver


def shutdown() -> None:
    """Ends the private head, with every run and worker that is left, or leaves the head that was connected to.

    The process that those for functions on data are forked from ends too; the next data set with a function starts another.
    """
    with _state.lock:
        client, _state.client = _state.client, None
        notes, _state.notes = _state.notes, None
        _state.environment = {}
        _state.log_to_driver = True
    if notes is not None:
        notes.remove()
    if client is not None:
        import atexit

        atexit.unregister(shutdown)
        client.shutdown()
    if (pools := sys.modules.get("carril.data._pool")) is not None:
        pools.close()


def is_initialized() -> bool:
    """True between `init()` (or the first `fit()`) and `shutdown()`."""
    return _state.client is not None or _in_worker()


def _in_worker() -> bool:
    """True inside a training function that runs in a worker, or in a trial."""
    session = sys.modules.get("carril.train._session")
    return session is not None and session.is_running() and bool(os.environ.get("CARRIL_AGENT"))


def _client_for(name: str) -> "Client":
    client = _state.client
    if client is None and _in_worker():
        client = _state.asked = _state.asked or _connected_in_worker()
    if client is None:
        raise ConnectionError(f"`{name}()` was called before `init()`\nhint: call `carril.init()` first")
    return client


def _connected_in_worker() -> "Client":
    """To the run's own head, only to ask it: nothing is started or told to end."""
    from carril._native import Client

    return Client.connect(os.path.join(os.path.dirname(os.environ["CARRIL_AGENT"]), "head.sock"))


def nodes() -> list[dict[str, Any]]:
    """One dict per node, under the names of Ray."""
    return [
        {
            "NodeID": node["id"],
            "Alive": True,
            "NodeManagerAddress": node["address"],
            "NodeManagerHostname": node["hostname"],
            "NodeName": node["hostname"],
            "Resources": dict(node["total"]),
            "Labels": {},
        }
        for node in _client_for("nodes").nodes()
    ]


def _sum(name: str, which: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for node in _client_for(name).nodes():
        for resource, amount in node[which].items():
            total[resource] = total.get(resource, 0.0) + amount
    return total


def cluster_resources() -> dict[str, float]:
    """What all nodes have, by name."""
    return _sum("cluster_resources", "total")


def available_resources() -> dict[str, float]:
    """What is free on all nodes, by name."""
    return _sum("available_resources", "free")
