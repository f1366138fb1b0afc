"""How this driver was started, and which run it was started again for.

`carril resume` runs a recorded command once more, in the directory where it was first run, and says in a variable of
the environment which run that is for. A run whose name was made up has to be found again among all that the command
runs: it is known by its function, its trainer, and how many runs of these two had a made-up name before it.

AGAIN-1: the variable is taken out of the environment when it is read: no other process acts on it.
AGAIN-2: a name is given out once.
"""

import os
import sys
import threading
from typing import Any, NamedTuple

from carril.exceptions import ConfigError

VARIABLE = "CARRIL_RESUME"
# Options of the interpreter that take what follows them.
_WITH_VALUE = "WX"


class Name(NamedTuple):
    """What a made-up name is known by when the command is run again."""

    function: str
    trainer: str
    number: int


class Resumed(NamedTuple):
    """The run that this driver was started again for."""

    location: str
    name: str
    # None if the user gave the run its name.
    made_up: Name | None


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: dict[tuple[str, str], int] = {}
        self.names: dict[str, Name] = {}
        self.resumed: Resumed | None = None
        self.has_gone_on = False


_state = _State()


def can_resume() -> bool:
    """Whether `carril resume` can run this driver's command again."""
    return _way(list(sys.orig_argv[1:]))[0] in ("script", "module", "code")


def how_started() -> dict[str, Any]:
    """What it takes to run this driver's command again, for `run.json`."""
    started, script = _way(list(sys.orig_argv[1:]))
    return {
        "python": sys.executable,
        "command_line": list(sys.orig_argv),
        "started_as": started,
        "script": script,
        "directory": _directory(started, script),
        # The options of `carril as-ray`; None without it.
        "as_ray": _lines("CARRIL_AS_RAY_OPTIONS") if os.environ.get("CARRIL_AS_RAY") == "1" else None,
    }


def _lines(variable: str) -> list[str]:
    return os.environ.get(variable, "").splitlines()


def _way(arguments: list[str]) -> tuple[str, str | None]:
    """A word for how the driver was started, and the script as it was given, if there is one."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        return ("notebook" if "ipykernel" in sys.modules else "prompt"), None
    if not sys.executable or not sys.orig_argv[0]:
        return "embedded", None
    if "--multiprocessing-fork" in arguments:
        return "child", None
    if hasattr(sys, "ps1"):
        return "prompt", None
    return _way_of_command(arguments)


def _way_of_command(arguments: list[str]) -> tuple[str, str | None]:
    left = iter(arguments)
    for argument in left:
        if argument == "-":
            break
        if argument.startswith("--"):
            # The only long option that takes a value.
            if argument == "--check-hash-based-pycs":
                next(left, None)
            continue
        if not argument.startswith("-"):
            return "script", argument
        for at, letter in enumerate(argument[1:], start=2):
            if letter in "cm":
                return ("code" if letter == "c" else "module"), None
            if letter in _WITH_VALUE:
                if at == len(argument):
                    next(left, None)
                break
    return "input", None


def _directory(started: str, script: str | None) -> str:
    """Where the command was run. The driver may have gone elsewhere since."""
    here = os.getcwd()
    if started == "script" and script is not None and not os.path.isabs(script):
        # Python has made the script's path absolute when it began.
        path = str(getattr(sys.modules.get("__main__"), "__file__", None) or "")
        for whole, given in ((path, script), (os.path.normpath(path), os.path.normpath(script))):
            before = whole.removesuffix(os.sep + given)
            if before != whole and os.path.isdir(before or os.sep):
                return before or os.sep
    return here


def label(function: object) -> str:
    """What a function is called, also where it is an object that can be called."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def name_for(function: object, trainer: str, fresh: str) -> str:
    """The name of a run that was given none: `fresh`, unless it is the one that this driver was started again for."""
    key = (label(function), trainer)
    with _state.lock:
        number = _state.counts.get(key, 0)
        _state.counts[key] = number + 1
        resumed = _resumed()
        made_up = Name(*key, number)
        # AGAIN-2: the count goes up each time, so that only one run is the one that is meant.
        name = resumed.name if resumed is not None and resumed.made_up == made_up else fresh
        _state.names[name] = made_up
        return name


def of_name(name: str) -> dict[str, Any] | None:
    """What a made-up name is known by, for `run.json`; None for one that the user gave."""
    with _state.lock:
        made_up = _state.names.get(name)
        return None if made_up is None else made_up._asdict()


def begins(location: str) -> bool:
    """A run begins there: True for the one that this driver was started again for."""
    with _state.lock:
        resumed = _resumed()
        is_meant = resumed is not None and resumed.location == location
        _state.has_gone_on = _state.has_gone_on or is_meant
        return is_meant


def is_again() -> bool:
    """True if this driver was started again for a run."""
    with _state.lock:
        return _resumed() is not None


def _resumed() -> Resumed | None:
    """The lock is held."""
    given = os.environ.pop(VARIABLE, None)
    if given:
        _state.resumed = _read(given)
        import atexit

        atexit.register(_warn)
    return _state.resumed


def _read(given: str) -> Resumed:
    from carril.train._locations import location, parent_and_name
    from carril.train._places import place
    from carril.train._result import parse_object

    where = location(given, VARIABLE)
    there = place(where)
    name, record = "run.json", there.read("run.json")
    if record is None:
        name, record = "experiment.json", there.read("experiment.json")
    if record is None:
        raise ConfigError(f"`{VARIABLE}` is `{given}`: there is no run", hints=["`carril resume` sets it; unset it"])
    content = parse_object(record)
    if content is None:
        raise ConfigError(
            f"`{VARIABLE}` is `{given}`: its `{name}` is damaged", hints=["`carril resume` sets it; unset it"]
        )
    asked = content.get("asked") or {}
    made_up = asked.get("made_up_name")
    return Resumed(where, parent_and_name(where)[1], None if made_up is None else Name(**made_up))


def _warn() -> None:
    resumed = _state.resumed
    if resumed is not None and not _state.has_gone_on:
        print(
            f"carril: warning: the command was run again for `{resumed.location}`, and did not go on with it\n"
            "hint: its name, its storage or its order of runs has changed; "
            f"`Trainer.restore({resumed.location!r})` goes on in any case",
            file=sys.stderr,
        )
