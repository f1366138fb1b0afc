"""What an experiment fails with."""

from carril.exceptions import ConfigTypeError, TrainingFailedError


class TuneError(TrainingFailedError):
    """The experiment could not be brought to its end, or trials of it failed where that counts."""


class TrainableError(ConfigTypeError, TuneError):
    """What was given cannot be tuned. A TuneError too, which Ray raises in such a place."""
