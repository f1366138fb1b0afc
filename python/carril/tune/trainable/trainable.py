"""The class form of a trial: `setup`, then `step` after `step`, with checkpoints between them.

The class knows nothing of experiments: it can be made and trained by hand. `_class_form` runs it as a trial.

CLASS-1: the counts (iterations, steps, time) are those of the line of checkpoints: they go on from the one restored.
CLASS-2: what `save_checkpoint` returned is what `load_checkpoint` gets: a dict, the directory, or a path inside it.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigTypeError, kind_of
from carril.tune.trainable import _saved

if TYPE_CHECKING:
    from carril.train._checkpoint import Checkpoint
    from carril.tune.trainable._resources import PlacementGroupFactory


@dataclass
class TrainingResult:
    """What `Trainable.save` returns. It can be used as the path of the checkpoint, too."""

    checkpoint: "Checkpoint"
    metrics: dict[str, Any] = field(default_factory=dict)

    def __fspath__(self) -> str:
        return self.checkpoint.path


class Trainable:
    """To be derived from. A trial makes one, with its config, and calls `step` until it has to stop.

    `setup(config)` prepares; `step()` trains a little and returns a dict of metrics, with `done: True` at the end;
    `save_checkpoint(directory)` and `load_checkpoint(checkpoint)` let a trial be paused and go on;
    `reset_config(new_config)` lets the next trial have this object; `cleanup()` comes last in any case.
    """

    # Here and not only in the constructor, which a class of the user may replace.
    config: Mapping[str, Any] = {}
    _trial: Any = None
    _iteration = 0
    _iterations_since_restore = 0
    _time_total = 0.0
    _time_since_restore = 0.0
    _timesteps_total: int | None = None
    _timesteps_since_restore = 0
    _episodes_total: int | None = None
    _last_result: Mapping[str, Any] = {}

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None) -> None:
        self.config = config or {}
        self.setup(dict(self.config))

    def setup(self, config: dict[str, Any]) -> None:
        """Prepares the trial. Called once, with its config."""

    def step(self) -> dict[str, Any]:
        """Trains a little, and returns what is to be reported."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `step`")

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Writes what is needed to go on into a directory, or returns it as a dict."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `save_checkpoint`")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Takes over what `save_checkpoint` has kept: the directory, or the dict that it returned."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `load_checkpoint`")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Prepares this object for another trial. False, as here, if it cannot: then a new one is made."""
        return False

    def cleanup(self) -> None:
        """Gives back what `setup` took."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Sees every result before it is reported."""

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        """Writes the model in these formats, and returns their paths."""
        return {}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> "PlacementGroupFactory | Mapping[str, float] | None":
        """What a trial with this config reserves; None for one CPU."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """A sentence for one whose trials do not fit."""
        return ""

    def train(self) -> dict[str, Any]:
        """One step, and its result with the counts and times that belong to it."""
        began = time.perf_counter()
        result = self.step()
        took = time.perf_counter() - began
        if not isinstance(result, dict):
            raise ConfigTypeError(
                f"`{type(self).__name__}.step` returned {kind_of(result)}: it must return a dict of metrics"
            )
        result = self._completed(dict(result), took)
        self.log_result(result)
        self._last_result = result
        return result

    def _completed(self, result: dict[str, Any], took: float) -> dict[str, Any]:
        took = result.setdefault("time_this_iter_s", took)
        self._iteration += 1
        self._iterations_since_restore += 1
        self._time_total += took
        self._time_since_restore += took
        self._count_steps(result)
        counts = {
            "done": False,
            "training_iteration": self._iteration,
            "iterations_since_restore": self._iterations_since_restore,
            "time_total_s": self._time_total,
            "time_since_restore": self._time_since_restore,
        }
        # What the user reports under such a name stands.
        return {**counts, **result}

    def _count_steps(self, result: dict[str, Any]) -> None:
        """`timesteps_total` and `episodes_total`: as given, or the sum of those of each iteration."""
        steps = result.get("timesteps_this_iter")
        if steps is not None:
            self._timesteps_total = (self._timesteps_total or 0) + steps
            self._timesteps_since_restore += steps
        episodes = result.get("episodes_this_iter")
        if episodes is not None:
            self._episodes_total = (self._episodes_total or 0) + episodes
        self._timesteps_total = result.get("timesteps_total", self._timesteps_total)
        self._episodes_total = result.get("episodes_total", self._episodes_total)
        for name, total in (("timesteps_total", self._timesteps_total), ("episodes_total", self._episodes_total)):
            if total is not None:
                result[name] = total

    def save(self, checkpoint_dir: "str | os.PathLike[str] | None" = None) -> TrainingResult:
        """Saves a checkpoint into a directory, or into a new temporary one that is the caller's to remove."""
        from carril.train._checkpoint import Checkpoint

        if checkpoint_dir is None:
            import tempfile

            checkpoint_dir = tempfile.mkdtemp(prefix="checkpoint_")
        directory = os.path.abspath(os.path.expanduser(os.fspath(checkpoint_dir)))
        os.makedirs(directory, exist_ok=True)
        _saved.write(self, directory)
        return TrainingResult(Checkpoint(directory), dict(self._last_result))

    def restore(self, checkpoint_path: "str | os.PathLike[str] | Checkpoint | TrainingResult") -> None:
        """Goes on from a checkpoint that `save`, or a trial, has made."""
        from carril.train._checkpoint import Checkpoint

        checkpoint = getattr(checkpoint_path, "checkpoint", checkpoint_path)
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        with checkpoint.as_directory() as directory:
            _saved.load(self, directory)

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        """Makes this object ready for a new trial, with its counts at 0. False if `reset_config` cannot."""
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        self._start_from(_saved.Counts())
        self._last_result = {}
        return True

    def stop(self) -> None:
        """Ends the use of this object."""
        self.cleanup()

    def export_model(self, export_formats: list[str] | str, export_dir: str | None = None) -> dict[str, str]:
        """Exports the model by `_export_model`, into the trial's directory unless another is given."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    def get_state(self) -> dict[str, Any]:
        """The counts and times, and the last result."""
        return {
            "iteration": self._iteration,
            "timesteps_total": self._timesteps_total,
            "episodes_total": self._episodes_total,
            "time_total": self._time_total,
            "last_result": dict(self._last_result),
        }

    def get_config(self) -> Mapping[str, Any]:
        return self.config

    @property
    def iteration(self) -> int:
        """How many steps were made, also before the last restore."""
        return self._iteration

    @property
    def training_iteration(self) -> int:
        return self._iteration

    @property
    def logdir(self) -> str:
        """The trial's directory; outside a trial, the working directory."""
        return os.getcwd() if self._trial is None else str(self._trial.directory)

    @property
    def trial_id(self) -> str:
        return "default" if self._trial is None else str(self._trial.id)

    @property
    def trial_name(self) -> str:
        return "default" if self._trial is None else str(self._trial.name)

    @property
    def trial_resources(self) -> dict[str, float] | None:
        """What this trial has reserved; None outside a trial."""
        return None if self._trial is None else dict(self._trial.resources)

    def _start_from(self, counts: _saved.Counts) -> None:
        self._iteration = counts.iteration
        self._timesteps_total = counts.timesteps_total
        self._episodes_total = counts.episodes_total
        self._time_total = counts.time_total_s
        self._time_since_restore = 0.0
        self._iterations_since_restore = self._timesteps_since_restore = 0
