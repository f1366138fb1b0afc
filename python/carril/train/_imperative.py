"""The imperative form of older Ray scripts, as methods of every trainer: start, run, save, load, shut down.

Each `run` is one run like a `fit()`, with its own group of workers, directory and files. What is kept from one to the
next is here and in the driver alone: the last checkpoint that rank 0 made, and the one that runs begin from.

IMP-1: a head that a trainer has started ends when the last trainer that uses it shuts down; any other head stays.
IMP-2: no checkpoint travels through the driver's memory: one is handed over as a directory of the run.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, TrainingFailedError, kind_of

if TYPE_CHECKING:
    from carril._native import Client
    from carril.train._checkpoint import Checkpoint
    from carril.train._config import RunConfig, ScalingConfig
    from carril.train._result import Result

_FUNCTION = "train_loop_per_worker"
_KEPT = "last_checkpoint"


class Imperative:
    """What a trainer can do beside `fit()`."""

    train_loop_per_worker: Any
    train_loop_config: dict[str, Any] | None
    scaling_config: "ScalingConfig"
    run_config: "RunConfig"
    resume_from_checkpoint: "Checkpoint | None"

    _runs = 0
    _begin_from: "Checkpoint | None" = None
    _last_checkpoint: "Checkpoint | None" = None

    def start(self) -> None:
        """Gets ready to run: starts a head if there is none. `run()` does it too."""
        self._check()
        if self.scaling_config.num_workers != 0:
            _head.hold(self)

    def run(self, train_func: Callable[..., Any] | None = None, config: dict[str, Any] | None = None) -> list[Any]:
        """Runs a function on every worker and returns what each rank returned, in order of rank.

        Without a function it is the one that the trainer was made with, or the caller's `train_loop_per_worker`. A
        second run of a named trainer has the name with `_2`, and so on.
        """
        function = train_func if train_func is not None else self.train_loop_per_worker
        function = checked_function(function, "train_func") or callers_function()
        if function is None:
            raise no_function("run(train_func)")
        if config is not None and not isinstance(config, dict):
            raise ConfigTypeError(f"`config` is {kind_of(config)}: it must be a dict")
        self.start()
        once = self._for_one_run(function, config)
        if self.scaling_config.num_workers == 0:
            return self._run_here(once)
        from carril._internal import spec
        from carril.train._locations import joined

        directory = joined(spec.storage_path(once.run_config), str(once.run_config.name))
        filesystem = spec.storage_filesystem(once.run_config)
        folder = _free_name(directory, filesystem)
        self._ran_in(directory, None)
        try:
            result = once._execute({**self._details(), "keep_last_checkpoint": folder})
        except (TrainingFailedError, KeyboardInterrupt) as error:
            self._last_checkpoint = _stored_checkpoint(directory, filesystem) or self._last_checkpoint
            # As in `fit()`: it happened in the workers, and our own frames would stand in the way.
            raise error.with_traceback(None) from error.__cause__
        handed_over = _handed_over(directory, folder, filesystem)
        self._ran_in(directory, _handed_over(directory, best_name(folder), filesystem))
        self._last_checkpoint = handed_over or result.checkpoint or self._last_checkpoint
        return list(result._rank_values)

    def save_checkpoint(self) -> "Checkpoint | None":
        """The last checkpoint that rank 0 made in a run of this trainer, reported or not; None before there is one."""
        return self._last_checkpoint

    def load_checkpoint(self, checkpoint: "Checkpoint | dict[str, Any] | str | os.PathLike[str] | None") -> None:
        """From here on, a run begins with this: `get_checkpoint()` gives it until the run has one of its own.

        A dict and a directory's path are understood too. None ends it.
        """
        from carril.train._checkpoint import Checkpoint

        if isinstance(checkpoint, dict):
            checkpoint = Checkpoint.from_dict(checkpoint)
        elif checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            if not isinstance(checkpoint, (str, os.PathLike)):
                raise ConfigTypeError(
                    f"`checkpoint` is {kind_of(checkpoint)}: it must be a Checkpoint, a dict or a path"
                )
            checkpoint = Checkpoint(checkpoint)
        if checkpoint is not None and not checkpoint.exists():
            raise CheckpointError(f"the checkpoint's directory `{checkpoint.path}` does not exist", origin="user")
        self._begin_from = checkpoint

    def shutdown(self) -> None:
        """Lets go of everything. The head ends too if a trainer has started it and no other one uses it."""
        self._begin_from = None
        _head.release(self)

    def _ran_in(self, directory: str, best: "Checkpoint | None") -> None:
        """A run is in this directory; at its end, with the best checkpoint that was saved and is not the last one."""

    def _check(self) -> None:
        raise NotImplementedError

    def _execute(self, details: dict[str, Any]) -> "Result":
        raise NotImplementedError

    def _for_one_run(self, function: Callable[..., Any], config: dict[str, Any] | None) -> "Imperative":
        import copy
        import dataclasses

        from carril._internal import spec

        self._runs += 1
        once = copy.copy(self)
        once.train_loop_per_worker = function
        once.train_loop_config = config if config is not None else self.train_loop_config
        name = self.run_config.name
        if not name:
            name = spec.default_name(function, type(self).__name__)
        elif self._runs > 1:
            name = f"{name}_{self._runs}"
        once.run_config = dataclasses.replace(self.run_config, name=name)
        return once

    @property
    def begins_from(self) -> "Checkpoint | None":
        """What `get_checkpoint()` gives while a run has no checkpoint of its own."""
        return self._begin_from if self._begin_from is not None else self.resume_from_checkpoint

    def _beginning(self) -> dict[str, Any]:
        """What is sent to the workers."""
        checkpoint = self.begins_from
        if checkpoint is None:
            return {}
        if not checkpoint.exists() and not self._has_checkpoint_of_its_own():
            raise CheckpointError(
                f"the checkpoint that the run is to begin with, `{checkpoint.path}`, does not exist", origin="user"
            )
        damage = checkpoint.damage()
        if damage is not None and not self._has_checkpoint_of_its_own():
            raise CheckpointError(
                f"the checkpoint that the run is to begin with, `{checkpoint.path}`, is damaged: {damage}",
                hints=[
                    "give an older checkpoint: `carril checkpoints RUN` lists those that are whole",
                    "if its files were changed on purpose, `Checkpoint(path, verify=False)` takes them as they are",
                ],
            )
        return {
            "checkpoint": checkpoint.path,
            "checkpoint_filesystem": checkpoint._filesystem,
            "checkpoint_verify": checkpoint._verify,
        }

    def _has_checkpoint_of_its_own(self) -> bool:
        """True if the run goes on, and does not need the one that it once began with."""
        if self.scaling_config.num_workers == 0:
            return False
        from carril._internal import again, spec
        from carril.train._locations import joined

        if not self.run_config.name:
            # Its name is not known yet.
            return again.is_again()
        directory = joined(spec.storage_path(self.run_config), self.run_config.name)
        return _stored_checkpoint(directory, spec.storage_filesystem(self.run_config)) is not None

    def _details(self) -> dict[str, Any]:
        config = self.run_config.checkpoint_config
        score = (config.checkpoint_score_attribute, config.checkpoint_score_order)
        return {"every_value": True, "checkpoint_score": score, **self._beginning()}

    def _run_here(self, once: "Imperative") -> list[Any]:
        from carril.train._kept import LastCheckpoint

        last = LastCheckpoint()
        with last.watching():
            result = once._execute({**self._details(), "keep_last_checkpoint": _KEPT})
            self._last_checkpoint = last.copy() or result.checkpoint or self._last_checkpoint
        return [result.return_value]


def checked_function(function: object, where: str) -> Callable[..., Any] | None:
    """The function, if there is one, or an error that names the argument."""
    if function is not None and not callable(function):
        raise ConfigTypeError(f"`{where}` is {kind_of(function)}: it must be a function")
    return function


def callers_function() -> Callable[..., Any] | None:
    """The function `train_loop_per_worker` of the module that has called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "carril":
        frame = frame.f_back
    function = frame.f_globals.get(_FUNCTION)
    return function if callable(function) else None


def no_function(call: str) -> ConfigError:
    return ConfigError(
        f"`{call}` has no function to run",
        hints=[f"give one as `{_FUNCTION}=…`, or define a function of that name beside the call"],
    )


def best_name(folder: str) -> str:
    """Where rank 0 hands over the best checkpoint, beside the last one."""
    return f"best_{folder}"


class _Head:
    """The head that trainers have started, and who uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._users: weakref.WeakSet[Imperative] = weakref.WeakSet()

    def hold(self, trainer: Imperative) -> None:
        from carril._internal import driver

        with self._lock:
            before = driver.current_client()
            client = driver.ensure_client()
            if client is not before:
                self._client, self._users = client, weakref.WeakSet()
            if client is self._client:
                self._users.add(trainer)

    def release(self, trainer: Imperative) -> None:
        with self._lock:
            self._users.discard(trainer)
            if self._client is None or self._users:
                return
            client, self._client = self._client, None
        from carril._internal import driver

        # The user may have ended it and begun another, which is none of ours.
        if driver.current_client() is client:
            driver.shutdown()


_head = _Head()


def _free_name(directory: str, filesystem: Any) -> str:
    """A name for what rank 0 hands over. Under `as-ray` the directory may be one that a run was in before."""
    from carril.train._places import place

    name, number, taken = _KEPT, 1, place(directory, filesystem).names()
    while name in taken:
        number += 1
        name = f"{_KEPT}_{number}"
    return name


def _handed_over(directory: str, folder: str, filesystem: Any) -> "Checkpoint | None":
    from carril.train._checkpoint import Checkpoint
    from carril.train._locations import joined

    checkpoint = Checkpoint.stored(joined(directory, folder), filesystem)
    return checkpoint if checkpoint.exists() else None


def _stored_checkpoint(directory: str, filesystem: Any) -> "Checkpoint | None":
    """The newest checkpoint that a run which ended badly has reported."""
    from carril.train._places import place
    from carril.train._result import Result

    if place(directory, filesystem).read("run.json") is None:
        return None
    return Result.from_path(directory, storage_filesystem=filesystem).checkpoint
