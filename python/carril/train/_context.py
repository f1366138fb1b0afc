"""Who a worker is, for the training function: ranks, sizes, the run's name and directory.

The methods that speak of trials are from the time when a training run was a trial of Tune. Older scripts use them, and
they answer with the run: its name, its id, its directory.
"""

import math
from typing import Any

from carril._internal.generation import under_as_ray
from carril.train import _session
from carril.train._locations import (
    has_pyarrow_filesystem,
    is_uri,
    joined,
    parent_and_name,
    pyarrow_filesystem,
    without_scheme,
)


def _tell_of(call: str) -> None:
    """In today's Ray a run is no trial."""
    if under_as_ray() and getattr(_session.entered(), "context", None) is None:
        from carril.as_ray.deprecated import tell

        tell(f"`TrainContext.{call}`", "a run has a name: `get_experiment_name()`, and files: `get_storage()`")


class TrainContext:
    """Answers for the worker that asks. It holds nothing: every call asks the session."""

    def get_world_size(self) -> int:
        """How many workers the run has."""
        return _session.current("get_world_size()").world_size

    def get_world_rank(self) -> int:
        """This worker's number, from 0."""
        return _session.current("get_world_rank()").rank

    def get_local_rank(self) -> int:
        """This worker's number among those on its node."""
        return _session.current("get_local_rank()").local_rank

    def get_local_world_size(self) -> int:
        """How many workers are on this node."""
        return _session.current("get_local_world_size()").local_world_size

    def get_node_rank(self) -> int:
        """This node's number, from 0."""
        return _session.current("get_node_rank()").node_rank

    def get_experiment_name(self) -> str:
        """The run's name."""
        return _session.current("get_experiment_name()").run_name

    def get_run_id(self) -> str:
        """The run's id, which no other run has."""
        return _session.current("get_run_id()").run_id

    def get_trial_name(self) -> str:
        _tell_of("get_trial_name()")
        return _session.current("get_trial_name()").run_name

    def get_trial_id(self) -> str:
        _tell_of("get_trial_id()")
        return _session.current("get_trial_id()").run_id

    def get_trial_dir(self) -> str:
        """The run's directory."""
        _tell_of("get_trial_dir()")
        return _session.current("get_trial_dir()").run_directory

    def get_trial_resources(self) -> dict[str, float]:
        """What this worker has reserved, by name."""
        _tell_of("get_trial_resources()")
        _session.current("get_trial_resources()")
        return dict(_session.details().get("resources", {}))

    def set_progress(self, done: float, total: float) -> None:
        """Says how far the function is, in steps, epochs or whatever it counts: so much is done of `total`.

        The live view then shows when it will be done. It may be called at every step: it is sent only now and then.
        """
        session = _session.current("set_progress()")
        done, total = float(done), float(total)
        if not (total > 0 and math.isfinite(total) and done >= 0):
            raise ValueError(
                f"`set_progress({done:g}, {total:g})`: `total` must be more than 0, and `done` not less than 0"
            )
        if _session.is_stored(session):
            session.set_progress(min(done, total), total)

    def get_metadata(self) -> dict[str, Any]:
        _tell_of("get_metadata()")
        _session.current("get_metadata()")
        return {}

    def get_storage(self) -> "StorageContext":
        """Where the run's files are."""
        session = _session.current("get_storage()")
        if not _session.is_stored(session):
            raise NotImplementedError("`get_storage()`: a run with `num_workers=0` has no directory")
        return StorageContext(session.storage, session.run_directory, _session.storage_filesystem())

    def __repr__(self) -> str:
        if not _session.is_running():
            return "TrainContext()"
        return f"TrainContext(rank={self.get_world_rank()}, world_size={self.get_world_size()})"


class StorageContext:
    """The places of a run's files, under the names of Ray.

    Those that end in `fs_path` are paths in `storage_filesystem`, as in Ray. Where that is None they are whole: a path or a
    URI. `Checkpoint(path, filesystem=storage_filesystem)` understands both.
    """

    def __init__(self, run: str, local_directory: str, filesystem: Any) -> None:
        self._run, self._filesystem = run, filesystem
        self.storage_path, self.experiment_dir_name = parent_and_name(run)
        self.experiment_fs_path = self._path_in_filesystem()
        self.storage_fs_path = parent_and_name(self.experiment_fs_path)[0]
        self.trial_dir_name, self.trial_fs_path = self.experiment_dir_name, self.experiment_fs_path
        self.local_working_directory = local_directory

    def _path_in_filesystem(self) -> str:
        stripped = self._filesystem is None and is_uri(self._run) and has_pyarrow_filesystem(self._run)
        return without_scheme(self._run, "storage") if stripped else self._run

    @property
    def storage_filesystem(self) -> Any:
        """The object that the run was given; otherwise pyarrow's, where pyarrow is installed, or None."""
        return self._filesystem if self._filesystem is not None else pyarrow_filesystem(self._run)

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        return joined(self.experiment_fs_path, checkpoint_name)
