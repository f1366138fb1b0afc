"""What a run keeps of its trainer, and the trainer that is made of it again.

Two files beside `run.json`: `trainer.pkl` has the configuration, each part pickled for itself, so that a part that is
given again need not be opened; `function.pkl` is what the workers were sent. The head writes them when the run begins,
and not again while they stay the same.

RESTORE-1: both are pickles: whoever can write them can run code here. Nothing else in this package opens them.
RESTORE-2: what could not be kept is said when it is needed, and never left out silently.
"""

import json
import os
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

from carril._internal.pickling import dumps, loads
from carril.exceptions import ConfigError, ConfigTypeError, NotFoundError, StorageError, VersionMismatchError
from carril.train._config import RunConfig, coerce, nearest
from carril.train._locations import checked_filesystem, is_uri, location, parent_and_name, without_scheme
from carril.train._places import MANIFEST_FILE, Place, place

if TYPE_CHECKING:
    from carril._native import Client
    from carril.train._trainer import DataParallelTrainer

T = TypeVar("T", bound="DataParallelTrainer")

_FUNCTION, _TRAINER = "function.pkl", "trainer.pkl"
_VERSION = 1
# A config that is larger is not kept a second time: the call that the workers were sent has it.
_LARGE = 1 << 20
# The trainer's attributes, and the arguments that they are made of.
_ARGUMENTS = {
    "train_loop_config": "train_loop_config",
    "backend_config": "backend_config",
    "scaling_config": "scaling_config",
    "run_config": "run_config",
    "datasets": "datasets",
    "data_config": "dataset_config",
    "validation_config": "validation_config",
    "resume_from_checkpoint": "resume_from_checkpoint",
}
# What belongs to one trainer object alone.
_OWN = ("train_loop_per_worker", "_as_it_began", "_begin_from", "_last_checkpoint", "_runs")


def keep(trainer: "DataParallelTrainer", client: "Client", call: str) -> dict[str, str]:
    """The blobs that a run keeps, by the name of the file. `call` is the one that its workers are sent."""
    return {_FUNCTION: call, _TRAINER: client.put_blob(trainer._as_it_began or pickled(trainer))}


def pickled(trainer: "DataParallelTrainer") -> bytes:
    """The content of `trainer.pkl`."""
    kind = type(trainer)
    values = {name: value for name, value in vars(trainer).items() if name not in _OWN}
    values["run_config"] = _without_place(trainer.run_config)
    values["resume_from_checkpoint"] = trainer.begins_from
    kept: dict[str, bytes] = {}
    lost: dict[str, str] = {}
    for name, value in values.items():
        try:
            data = _dumped(value)
        except _Temporary as error:
            lost[name] = str(error)
            continue
        except Exception as error:
            lost[name] = f"{type(error).__name__}: {error}"
            continue
        if name != "train_loop_config" or len(data) <= _LARGE:
            kept[name] = data
    return pickle.dumps(
        {
            "version": _VERSION,
            "class": (kind.__module__, kind.__qualname__),
            "class_pickle": _class_pickle(kind),
            "kept": kept,
            "lost": lost,
        }
    )


class _Temporary(Exception):
    """What was to be pickled goes with this process."""


def _class_pickle(kind: type) -> bytes | None:
    try:
        return dumps(kind)
    except Exception:  # a class of the user's script: the script that restores has it too
        return None


def _dumped(value: Any) -> bytes:
    from carril.train._checkpoint import Checkpoint

    # Its files would go into the pickle, however large they are.
    if isinstance(value, Checkpoint) and value.is_temporary:
        raise _Temporary("it was a temporary one of the driver")
    return dumps(value)


def _without_place(run_config: RunConfig) -> RunConfig:
    """Where the run is, is known from where it is found. A file system object may hold keys."""
    import copy

    kept = copy.copy(run_config)
    kept.name = kept.storage_path = kept.local_dir = kept.storage_filesystem = kept.resume = None
    return kept


class _DamagedError(StorageError):
    """A file is not what was written: another try will not help."""


def _hashes(record: bytes) -> dict[str, str]:
    """Of the files that were kept, by name; a record that cannot be read has none."""
    try:
        kept = json.loads(record).get("kept")
    except (ValueError, AttributeError):
        return {}
    return kept if isinstance(kept, dict) else {}


class _Kept:
    """A run's directory, and what it has of the trainer."""

    def __init__(self, where: str, filesystem: Any) -> None:
        self.where, self.filesystem = where, filesystem
        self.place: Place = place(where, filesystem)

    def open(self) -> None:
        record = self.place.read("run.json")
        if record is None:
            raise self._no_run()
        self._hashes = _hashes(record)
        self.content: dict[str, Any] = _loaded(self._read(_TRAINER), _TRAINER)
        if not isinstance(self.content, dict) or "version" not in self.content:
            raise ConfigError(f"`{_TRAINER}` of the run `{self.where}` is none of ours")
        if self.content["version"] > _VERSION:
            raise VersionMismatchError(
                f"the trainer of `{self.where}` was kept by a newer Carril", hints=["upgrade Carril"]
            )

    def _read(self, name: str) -> bytes:
        try:
            data = self.place.read(name)
        except StorageError as error:
            path = os.path.join(self.where, name)
            is_local = self.filesystem is None and not is_uri(self.where)
            if not is_local or os.path.isfile(path) or not os.path.lexists(path):
                raise
            raise _DamagedError(error.message, hints=error.hints) from error
        if data is None:
            raise NotFoundError(
                f"the run `{self.where}` has no `{name}`",
                hints=["make its trainer as before, with the run's `name` and `storage_path`: `fit()` goes on"],
            )
        from carril._native import blob_hash

        if self._hashes.get(name, (hash := blob_hash(data))) != hash:
            raise _DamagedError(
                f"`{name}` of the run `{self.where}` is damaged: it is not what the run was started with",
                hints=["make its trainer as before, with the run's `name` and `storage_path`: `fit()` resumes it"],
            )
        return data

    def _no_run(self) -> NotFoundError:
        names = self.place.names()
        if MANIFEST_FILE in names:
            parent, _ = parent_and_name(self.where)
            return NotFoundError(
                f"`{self.where}` is a checkpoint, not a run",
                hints=[
                    f"its run is `{parent}`",
                    "for a new run that begins with it, give a trainer `resume_from_checkpoint=Checkpoint(path)`",
                ],
            )
        if not names and not (self._is_local and os.path.exists(self.where)):
            return NotFoundError(f"`{self.where}` does not exist")
        runs = [name for name in names if self._is_local and os.path.exists(os.path.join(self.where, name, "run.json"))]
        return NotFoundError(
            f"`{self.where}` is not the directory of a run: it has no `run.json`",
            hints=[
                f"it holds the runs {', '.join(f'`{name}`' for name in runs[:5])}: give the path of one"
                if runs
                else "a run's directory is its `storage_path` and its name: see `Result.path`"
            ],
        )

    @property
    def _is_local(self) -> bool:
        return self.filesystem is None and not is_uri(self.where)

    def has_checkpoint(self) -> bool:
        return any(stored["damage"] is None for stored in self.place.checkpoints())

    def call(self) -> dict[str, Any]:
        """What the workers were sent."""
        call: dict[str, Any] = _loaded(self._read(_FUNCTION), "train_loop_per_worker", "train_loop_per_worker")
        return call

    def value(self, name: str) -> Any:
        """One attribute of the trainer."""
        argument = _ARGUMENTS.get(name)
        reason = self.content["lost"].get(name)
        if reason is None:
            return _loaded(self.content["kept"][name], argument or name, argument)
        if argument is None:
            hint = "make the trainer as before, with the run's `name` and `storage_path`: `fit()` goes on"
        else:
            hint = f"give it: `restore(path, {argument}=…)`"
        raise ConfigError(f"`{argument or name}` of the run `{self.where}` could not be kept: {reason}", hints=[hint])

    def trainer_class(self, cls: type[T]) -> type[T]:
        """The class of the run's trainer, which must be `cls` or one that is derived from it."""
        module, name = self.content["class"]
        # A class of the user's script comes out of its pickle as another one of the same name.
        if (module, name) == (cls.__module__, cls.__qualname__):
            return cls
        data = self.content["class_pickle"]
        kind = None if data is None else _loaded(data, name)
        if kind is None or not issubclass(kind, cls):
            own = name.rpartition(".")[2]
            raise ConfigError(
                f"the run `{self.where}` is of a `{own}`, which is not a `{cls.__name__}`",
                hints=[f"call `{own}.restore(path)`"],
            )
        found: type[T] = kind
        return found


def _loaded(data: bytes, what: str, argument: str | None = None) -> Any:
    """RESTORE-1. `argument` is what can be given in its place."""
    try:
        return loads(data)
    except Exception as error:
        hints = [
            "what the run's script imports must be importable here too: start from its directory, or set PYTHONPATH"
        ]
        if argument is not None:
            hints.append(f"or give it: `restore(path, {argument}=…)`")
        raise ConfigError(
            f"`{what}` of the run cannot be unpickled: {type(error).__name__}: {error}", hints=hints
        ) from error


def _find(path: "str | os.PathLike[str]", storage_filesystem: Any) -> _Kept:
    filesystem = checked_filesystem(storage_filesystem, "storage_filesystem")
    where = location(path, "path") if filesystem is None else without_scheme(path, "path")
    return _Kept(where, filesystem)


def can_restore(cls: "type[DataParallelTrainer]", path: "str | os.PathLike[str]", storage_filesystem: Any) -> bool:
    """Whether `restore` gives a trainer without further arguments. Raises where the storage cannot be asked."""
    kept = _find(path, storage_filesystem)
    try:
        _restored(cls, kept, {})
    except (NotFoundError, ConfigError, VersionMismatchError, _DamagedError):
        return False
    return True


def restore(
    cls: type[T], path: "str | os.PathLike[str]", storage_filesystem: Any, function: Any, given: dict[str, Any]
) -> T:
    """A trainer whose `fit()` resumes the run in `path`."""
    kept = _find(path, storage_filesystem)
    arguments = {name: value for name, value in given.items() if value is not None}
    if function is not None:
        arguments["train_loop_per_worker"] = function
    return _restored(cls, kept, arguments)


def _restored(cls: type[T], kept: _Kept, given: dict[str, Any]) -> T:
    kept.open()
    given = _checked(given)
    kind = kept.trainer_class(cls)
    call = kept.call() if "train_loop_per_worker" not in given else None
    arguments = {"train_loop_per_worker": call["function"] if call is not None else None}
    for name, argument in _ARGUMENTS.items():
        arguments[argument] = given[argument] if argument in given else _recorded(kept, name, call)
    arguments.update(given)
    arguments["run_config"] = _placed(coerce(RunConfig, arguments["run_config"], "run_config"), kept)
    # Not by its own constructor: a class of the user's may have another one.
    trainer = kind.__new__(kind)
    known = {*kept.content["kept"], *kept.content["lost"]} - set(_ARGUMENTS)
    vars(trainer).update({name: kept.value(name) for name in known})
    _initialize(trainer, arguments)
    return trainer


def _initialize(trainer: "DataParallelTrainer", arguments: dict[str, Any]) -> None:
    from carril.train._trainer import DataParallelTrainer

    DataParallelTrainer.__init__(trainer, **arguments)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    known = ["train_loop_per_worker", *_ARGUMENTS.values(), "torch_config", "metadata"]
    for name in given:
        if name not in known:
            raise ConfigTypeError(f"`restore()` has no argument `{name}`", hints=nearest(name, known))
    if "torch_config" in given:
        from carril.train.torch._config import TorchConfig

        given = {**given, "backend_config": coerce(TorchConfig, given["torch_config"], "torch_config")}
        del given["torch_config"]
    return given


def _recorded(kept: _Kept, name: str, call: dict[str, Any] | None) -> Any:
    content = kept.content
    if name == "train_loop_config" and name not in {*content["kept"], *content["lost"]}:
        call = call if call is not None else kept.call()
        return call["arguments"][0] if call["arguments"] else None
    if name == "resume_from_checkpoint" and name in content["lost"] and kept.has_checkpoint():
        return None
    # A field that the version of the run did not have is as if it had not been given.
    return kept.value(name) if name in {*content["kept"], *content["lost"]} else None


def _placed(run_config: RunConfig, kept: _Kept) -> RunConfig:
    """The same for the run where it was found, also if that has finished."""
    import dataclasses

    storage, name = parent_and_name(kept.where)
    if run_config.name not in (None, name):
        raise ConfigError(
            f"`run_config.name` is {run_config.name!r}, and the run is `{kept.where}`",
            hints=["leave `name` and `storage_path` out: the run stays where it is"],
        )
    return dataclasses.replace(
        run_config,
        name=name,
        storage_path=storage or "/",
        storage_filesystem=kept.filesystem,
        local_dir=None,
        resume=True,
    )
