"""What an experiment keeps of its tuner, and the tuner that is made of it again.

One file, `tuner.pkl`: a line that says which format it has and what its content is, by length and checksum, then a pickle,
with each part pickled for itself, so that a part that is given again need not be opened. To read the results of an
experiment, or to see whether it can be restored, it is never unpickled.

TRESTORE-1: it is a pickle: whoever can write it can run code here. Only `Tuner.restore` opens it.
TRESTORE-2: a file that is missing or not what was written is an error that names it and what to give instead; what it was
  to say is never guessed.
"""

import hashlib
import io
import os
import pickle
import pickletools
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from carril._internal.pickling import dumps, loads
from carril.exceptions import ConfigError, NotFoundError, StorageError
from carril.train._config import RunConfig, coerce
from carril.train._locations import (
    checked_filesystem,
    is_uri,
    joined,
    location,
    parent_and_name,
    path_in_filesystem,
)
from carril.train._places import place
from carril.tune._config import TuneConfig
from carril.tune._stored import StoredExperiment, read_experiment

if TYPE_CHECKING:
    from carril.tune._plan import Plan, Resuming
    from carril.tune.tuner import Tuner

T = TypeVar("T", bound="Tuner")

FILE = "tuner.pkl"
_VERSION = 2
_MARK = b"carril-tuner"


def pickled(plan: "Plan") -> bytes:
    """The content of `tuner.pkl`: what cannot be pickled is left out, and named."""
    import copy

    run_config = copy.copy(plan.run_config)
    run_config.name = run_config.storage_path = run_config.local_dir = run_config.storage_filesystem = None
    parts = {"param_space": plan.space, "tune_config": plan.tune_config, "run_config": run_config}
    parts["callback_states"] = states_of(run_config.callbacks)
    kept: dict[str, bytes] = {}
    lost: dict[str, str] = {}
    for name, value in parts.items():
        try:
            kept[name] = dumps(value)
        except Exception as error:
            lost[name] = f"{type(error).__name__}: {error}"
    data = pickle.dumps({"version": _VERSION, "trainable": plan.trainable_name, "kept": kept, "lost": lost})
    header = b"%s %d %d %s\n" % (_MARK, _VERSION, len(data), hashlib.sha256(data).hexdigest().encode())
    return header + data


def states_of(callbacks: list[Any]) -> list[Any]:
    """What each callback wants kept; None of one that wants nothing."""
    return [callback.get_state() if hasattr(callback, "get_state") else None for callback in callbacks]


def damage(data: bytes | None) -> str | None:
    """What is wrong with the content of `tuner.pkl`; None where it is what was written. Nothing is unpickled."""
    if data is None:
        return "is missing"
    if not data.startswith(_MARK):
        return _damage_of_first_format(data)
    header, _, content = data.partition(b"\n")
    fields = header.split()
    if len(fields) != 4:
        return "is damaged: its first line was cut off"
    if fields[1] != b"%d" % _VERSION:
        return f"has format {fields[1].decode(errors='replace')}, which this version of carril does not know"
    if fields[2] != b"%d" % len(content):
        return f"is damaged: it has {len(content)} of {fields[2].decode(errors='replace')} bytes"
    if fields[3] != hashlib.sha256(content).hexdigest().encode():
        return "is damaged: its checksum is not what was written"
    return None


def _damage_of_first_format(data: bytes) -> str | None:
    """A pickle alone: whether it is whole can be seen, not whether it is what was written."""
    try:
        end = 0
        for opcode, _, _ in pickletools.genops(io.BytesIO(data)):
            end += opcode.name == "STOP"
    except Exception:
        return "is damaged: it is not a whole pickle"
    return None if end else "is damaged: it is not a whole pickle"


def is_restorable(path: "str | os.PathLike[str]", storage_filesystem: Any = None) -> bool:
    """Whether `restore` has what it needs, as far as can be seen without opening a pickle."""
    stored = _located(path, storage_filesystem)
    return damage(place(stored.path, stored.filesystem).read(FILE)) is None


def keep(plan: "Plan", path: str) -> None:
    """Puts `tuner.pkl` into an experiment's directory. Others cannot read it: it may hold secrets.

    A disk that is full is no reason to give up a search that has begun: `fit()` resumes it without the file.
    """
    try:
        _write(plan, path)
    except OSError as error:
        warnings.warn(
            f"`{joined(path, FILE)}` cannot be written: {error}; `Tuner.restore` will ask for what it holds",
            stacklevel=2,
        )


def _write(plan: "Plan", path: str) -> None:
    if is_uri(path) or plan.run_config.storage_filesystem is not None:
        place(path, plan.run_config.storage_filesystem).write(FILE, pickled(plan))
        return
    part = os.path.join(path, f"{FILE}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pickled(plan))
    os.replace(part, os.path.join(path, FILE))


def restore(
    kind: type[T],
    path: "str | os.PathLike[str]",
    trainable: Any,
    resuming: "Resuming",
    given: dict[str, Any],
    storage_filesystem: Any,
) -> T:
    """The tuner of `Tuner.restore`."""
    stored = _located(path, storage_filesystem)
    content = _content(place(stored.path, stored.filesystem).read(FILE), stored.path, given)
    _check_name(trainable, stored.record)

    def part(name: str) -> Any:
        if given[name] is not None:
            return given[name]
        if name in content["lost"]:
            raise ConfigError(
                f"`{name}` of the experiment could not be kept: {content['lost'][name]}",
                hints=[f"give it to `restore`: `Tuner.restore(path, trainable, {name}=…)`"],
            )
        if name not in content["kept"]:
            return None
        try:
            return loads(content["kept"][name])
        except Exception as error:  # a module or a class that is not there any more
            raise ConfigError(
                f"`{name}` in `{joined(stored.path, FILE)}` cannot be loaded: {type(error).__name__}: {error}",
                hints=[f"give it to `restore`: `Tuner.restore(path, trainable, {name}=…)`"],
            ) from error

    run_config = coerce(RunConfig, part("run_config"), "run_config")
    parent, name = parent_and_name(stored.path)
    run_config.name, run_config.storage_path = name, parent
    run_config.storage_filesystem = stored.filesystem
    tune_config = coerce(TuneConfig, part("tune_config"), "tune_config")
    if "callback_states" in content["kept"]:
        states = loads(content["kept"]["callback_states"])
        for callback, state in zip(run_config.callbacks, states, strict=False):
            if state is not None:
                callback.set_state(state)
    return kind(
        trainable, param_space=part("param_space"), tune_config=tune_config, run_config=run_config, _resuming=resuming
    )


def _located(path: "str | os.PathLike[str]", storage_filesystem: Any) -> StoredExperiment:
    """The experiment; without its own files what there is in the directories of its trials, which the head reads."""
    try:
        return read_experiment(path, storage_filesystem)
    except (NotFoundError, StorageError):
        filesystem = checked_filesystem(storage_filesystem, "storage_filesystem")
        where = location(path, "path") if filesystem is None else path_in_filesystem(path, "path").rpartition("://")[2]
        if place(where, filesystem).read(FILE) is None:
            raise
        return StoredExperiment(where, {}, [], filesystem)


def _content(data: bytes | None, path: str, given: dict[str, Any]) -> dict[str, Any]:
    """TRESTORE-2. What was given is not needed from the file."""
    wrong, error = damage(data), None
    if wrong is None:
        assert data is not None
        try:
            content = loads(data.partition(b"\n")[2] if data.startswith(_MARK) else data)
            kept, lost = content["kept"], content["lost"]
            if isinstance(kept, dict) and isinstance(lost, dict):
                return {"kept": kept, "lost": lost}
            wrong = "is damaged: it holds something else"
        except Exception as raised:
            wrong, error = f"is damaged: {type(raised).__name__}: {raised}", raised
    needed = [name for name, value in given.items() if value is None]
    if not needed:
        return {"kept": {}, "lost": {}}
    missing = ", ".join(f"{name}=…" for name in needed)
    raise StorageError(
        f"the experiment cannot be restored: `{joined(path, FILE)}` {wrong}",
        hints=[
            f"give what it held: `Tuner.restore(path, trainable, {missing})`",
            "or run the script again that made it: `Tuner(…).fit()` with the same `name` and `storage_path` resumes it",
        ],
    ) from error


def _check_name(trainable: Any, record: dict[str, Any]) -> None:
    from carril.tune.trainable import check_trainable

    name, before = check_trainable(trainable), record.get("trainable")
    if before is not None and name != before:
        raise ConfigError(
            f"the experiment tuned `{before}`, and `{name}` is given",
            hints=[f"give the trainable that the experiment had, or one that is called `{before}`"],
        )
