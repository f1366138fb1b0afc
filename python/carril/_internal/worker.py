"""A worker: connects to its agent, sets up the framework, runs the user's function, tells how it ended.

Started by a fork of the zygote, or plainly as `python -m carril._internal.worker`. The function runs in the main
thread; the connection to the agent is the native session's, on a thread of its own.

WRK-1: what the user printed is written out before the end is reported, so that output never comes after it.
WRK-2: `session.failed` or `session.returned` is called exactly once.
"""

import os
import signal
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from carril._internal import cells, torch_store
from carril._internal.failure import describe, flush_output
from carril._internal.mappers import DATA_FUNCTIONS
from carril._internal.pickling import dumps, loads
from carril._native import STACK_SIGNAL, Session, shield_from_preemption
from carril.exceptions import kind_of

if TYPE_CHECKING:
    from carril.train._kept import LastCheckpoint


# The order to leave and the signal that goes with it come by two ways.
_TOLD_WITHIN_S = 0.5


# What `_serve` returns for a worker that was asked to leave: the process is not used again, and leaves with 0.
_LEAVES = -1


class Stopped(SystemExit):
    """The process was asked to end while the function ran."""


def main() -> int:
    """Runs the worker to its end and returns the exit code of the process."""
    # Ctrl-C goes to the driver, which stops the run. A terminal would send it to the workers as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_in_order_when_told()
    # A scheduler that is going to take the machine may signal every process of the job: the agent understands it.
    shield_from_preemption()
    _show_crashes()
    session = Session.connect()
    code = _serve(session)
    # A process of a search runs the next trial.
    while code == 0 and session.is_reused:
        following = session.next()
        if following is None:
            break
        session = following
        _take_over(session)
        code = _serve(session)
    session.wait_exit()
    return max(code, 0)


def _take_over(session: Session) -> None:
    """The process is another worker from here on: its output is redirected already."""
    os.environ.update(session.environment)
    try:
        os.chdir(session.working_directory)
    except OSError as error:
        print(f"carril: the trial's directory cannot be entered: {error}", file=sys.stderr)


def _serve(session: Session) -> int:
    """Runs one worker's function and tells how it ended."""
    try:
        value = _run(session)
    except Stopped as stopped:
        flush_output()
        # Somebody else's signal ends the process as it would without us: the head then sees what it was.
        if not session.is_told_to_exit(_TOLD_WITHIN_S):
            _die_of(stopped.code)
        return _LEAVES
    except BaseException as error:
        flush_output()
        session.failed(*describe(error))
        return 1
    flush_output()
    session.returned(value)
    return 0


def _die_of(code: Any) -> None:
    number = int(code) - 128
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _show_crashes() -> None:
    """A crash in native code prints the Python line that it happened in."""
    import faulthandler

    try:
        faulthandler.enable()
    except (OSError, ValueError, AttributeError):  # no usable stderr
        return


def _leave_in_order_when_told() -> None:
    """A stop reaches the function as SystemExit, so that its `finally` runs. Children die of the signal as always."""
    worker = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == worker:
            raise Stopped(128 + number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)


def _show_stacks_when_asked() -> bool:
    """On a signal every thread's stack goes into a file, in C: also while the interpreter is stuck."""
    path = os.environ.pop("CARRIL_STACKS", "")
    if not path:
        return False
    import faulthandler

    # Kept open for as long as the process lives: the handler writes to the descriptor.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=True, chain=False)
    return True


def show_lines_as_they_come() -> None:
    """Output goes to a file, which Python would fill in blocks. What cannot be encoded is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, errors="backslashreplace")


def _take_the_drivers_path() -> None:
    """The agent gives it as PYTHONPATH, to which a new interpreter adds entries that the driver does not have."""
    path = os.environ.pop("PYTHONPATH", "")
    if path:
        sys.path[:] = path.split(os.pathsep)
    # What the user's own subprocesses are to find there.
    own = os.environ.pop("CARRIL_PYTHONPATH", "")
    if own:
        os.environ["PYTHONPATH"] = own


def _run_sitecustomize() -> None:
    """What the user has put on PYTHONPATH ran in the driver when it started. A process that is forked never starts."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    spec = PathFinder.find_spec("sitecustomize", entries) if entries else None
    loaded = sys.modules.get("sitecustomize")
    if spec is None or spec.loader is None or getattr(loaded, "__file__", None) == spec.origin:
        return
    module = sys.modules["sitecustomize"] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception:
        # As at the start of an interpreter: it is shown, and the program goes on.
        import traceback

        traceback.print_exc()


def _run(session: Session) -> str | None:
    """Runs the function. Returns the hash of the blob with what this rank returned, where the driver wants it."""
    from carril.train import _session

    stacks = _show_stacks_when_asked()
    _run_sitecustomize()
    # Before the function is unpickled: that may import torch.
    torch_store.serve_when_torch_is_there()
    _session.enter(session)
    call = _load(session.function_path)
    _session.set_details(call["details"])
    backend = call["backend"]
    function, arguments = call.get("function"), call.get("arguments", ())
    if session.trial is not None:
        from carril.tune import _session as of_trials

        function, arguments = of_trials.begin(call, session)
    if backend is not None:
        backend.setup(session)
    last = _watch_checkpoints(session, call["details"])
    session.ready(stacks)
    value = _call(function, arguments)
    # Not after a failure: what the others then learn must not come before it.
    if "carril.train._group" in sys.modules:
        sys.modules["carril.train._group"].leave()
    if backend is not None:
        backend.teardown()
    returned = _returned(session, call["details"], value)
    # After the value was pickled: it may hold the very checkpoint whose directory is handed over.
    if last is not None:
        last.hand_over(session.run_directory, call["details"]["keep_last_checkpoint"])
    return returned


def _watch_checkpoints(session: Session, details: dict[str, Any]) -> "LastCheckpoint | None":
    if session.rank != 0 or not details.get("keep_last_checkpoint"):
        return None
    from carril.train import _kept, _session

    last = _kept.LastCheckpoint()
    _session.watch_checkpoints(last)
    return last


def _returned(session: Session, details: dict[str, Any], value: Any) -> str | None:
    wanted = session.rank == 0 or details.get("every_value")
    value = value if wanted else None
    if "datasets" in details:
        from carril.train import _data

        value = _data.noted(value)
    if value is None:
        return None
    try:
        data = dumps(value)
    except Exception as error:
        raise TypeError(
            f"what rank {session.rank} returned, {kind_of(value)}, cannot be sent to the driver: {error}"
        ) from error
    return session.put_blob(data)


def _call(function: Any, arguments: tuple[Any, ...]) -> Any:
    worker = os.getpid()
    try:
        value = function(*arguments)
    except BaseException as error:
        if os.getpid() != worker:
            _leave_forked(error)
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return None
        raise
    if os.getpid() != worker:
        _leave_forked(None)
    return value


def _leave_forked(error: BaseException | None) -> None:
    """The function has forked, and this is the child: it has no session, and ends as a child of any script does."""
    code = 0
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        import traceback

        traceback.print_exception(error)
        code = 1
    flush_output()
    os._exit(code & 0xFF)


# What this process has loaded last: one that serves many trials is given the same function each time.
_loaded: tuple[str, dict[str, Any]] | None = None


def _load(path: str) -> dict[str, Any]:
    global _loaded
    if _loaded is None or _loaded[0] != path:
        _loaded = path, _load_anew(path)
    return _loaded[1]


def _load_anew(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()
    main_module = ModuleType("__main__")
    sys.modules["__main__"] = main_module
    call: dict[str, Any] = loads(data)
    cells.take(call.get("cells", {}))
    sys.argv[:] = call["argv"]
    if call["script"]:
        main_module.__file__ = call["script"]
    # The script's functions and classes came by value. Where pickle and multiprocessing look for them by name, in
    # `__main__`, they are put as well: `torch.save(model)` works with a class of the script.
    for kind in call.get("classes", ()):
        setattr(main_module, kind.__name__, kind)
    function = call.get("of_the_user", call.get("function"))
    function = getattr(function, "__func__", function)
    if getattr(function, "__module__", None) == "__main__":
        for name, value in getattr(function, "__globals__", {}).items():
            if not name.startswith("__"):
                setattr(main_module, name, value)
    return call


def run_and_exit() -> None:
    """Runs the worker and leaves without the interpreter's teardown, which is slow with large libraries."""
    code = 1
    try:
        code = main()
    except BaseException as error:  # the session itself failed: the agent is gone, or never was
        print(f"carril: the worker ends: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        _run_exit_functions()
        flush_output()
        os._exit(code)


def _run_exit_functions() -> None:
    import atexit

    # Threads that the user left running are not waited for: one of them would hold the whole group.
    try:
        atexit._run_exitfuncs()
    except BaseException as error:
        print(f"carril: an exit function failed: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    _take_the_drivers_path()
    # One that was not forked has nothing to fork from.
    os.environ.pop(DATA_FUNCTIONS, None)
    show_lines_as_they_come()
    run_and_exit()
