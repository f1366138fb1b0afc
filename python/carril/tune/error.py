"""What an experiment fails with."""

from carril.exceptions import TrainingFailedError


class TuneError(TrainingFailedError):
    """The experiment could not be brought to its end, or trials of it failed where that counts."""
