"""The first steps of a worker after the fork: everything of the zygote that must not show is replaced.

Environment, directory, path and output are the run's; random numbers and thread counts are the worker's own; exit
functions of the zygote's imports do not run twice.
"""

import gc
import os
import signal
import sys

from carril._internal.mappers import DATA_FUNCTIONS, fork_nursery
from carril._internal.worker import run_and_exit, show_lines_as_they_come


def become_worker(
    environment: dict[str, str], directory: str, path: list[str], threads: int, descriptors: list[int]
) -> None:
    """Runs the worker to its end. Never returns."""
    os.setsid()
    _reset_signals()
    _redirect(descriptors[0])
    os.environ.clear()
    os.environ.update(environment)
    # The zygote's own place for temporary files goes with the agent.
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]
    if len(descriptors) > 1:
        os.environ["CARRIL_STORE_FD"] = str(descriptors[1])
    try:
        os.chdir(directory)
    except OSError as error:
        print(f"carril: the driver's directory cannot be entered: {error}", file=sys.stderr)
    sys.path[:] = path
    sys.argv[:] = [""]
    _leave_exit_functions_to_the_zygote()
    if os.environ.pop(DATA_FUNCTIONS, ""):
        fork_nursery()
    _set_threads(threads)
    _reseed()
    gc.enable()
    run_and_exit()


def _reset_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _redirect(output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if output > 2:
        os.close(output)
    show_lines_as_they_come()


def _leave_exit_functions_to_the_zygote() -> None:
    """Finalizers that imports have registered (temporary directories) belong to the zygote, which still needs them."""
    import weakref

    registry = getattr(weakref.finalize, "_registry", {})
    for info in registry.values():
        info.atexit = False


def _set_threads(threads: int) -> None:
    count = os.environ.setdefault("OMP_NUM_THREADS", str(max(1, threads)))
    torch = sys.modules.get("torch")
    # Torch read the variable when it was imported, in another environment.
    if torch is not None and count.isdigit() and int(count) > 0:
        torch.set_num_threads(int(count))


def _reseed() -> None:
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()
