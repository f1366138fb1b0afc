"""Who a trial is, for its own function."""

from typing import Any

from carril.train._context import TrainContext
from carril.tune import _session


class TuneContext(TrainContext):
    """What `tune.get_context()` returns. The methods of a train context are there too."""

    def get_experiment_name(self) -> str:
        """The name of the experiment."""
        info = _session.trial_info()
        return info.experiment_name if info is not None else super().get_experiment_name()

    def get_trial_id(self) -> str:
        """Which no other trial of the experiment has."""
        info = _session.trial_info()
        return info.id if info is not None else super().get_trial_id()

    def get_trial_name(self) -> str:
        info = _session.trial_info()
        return info.name if info is not None else super().get_trial_name()

    def get_trial_dir(self) -> str:
        """The trial's own directory, in which its function begins."""
        info = _session.trial_info()
        return info.directory if info is not None else super().get_trial_dir()

    def get_trial_resources(self) -> Any:
        """What the trial has reserved."""
        from carril.tune.trainable import PlacementGroupFactory

        info = _session.trial_info()
        resources = info.resources if info is not None else super().get_trial_resources()
        return PlacementGroupFactory([resources]) if resources else resources
