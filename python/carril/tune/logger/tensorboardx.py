"""A trial's results for TensorBoard."""

from carril.tune.logger.logger import LoggerCallback


class TBXLoggerCallback(LoggerCallback):
    """`events.out.tfevents.*` is written for every trial without it: giving it changes nothing."""
