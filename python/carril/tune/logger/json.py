"""The lines of a trial's results."""

from carril.tune.logger.logger import LoggerCallback


class JsonLoggerCallback(LoggerCallback):
    """`result.json` and `params.json` are written for every trial without it: giving it changes nothing."""
