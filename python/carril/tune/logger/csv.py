"""The table of a trial's results."""

from carril.tune.logger.logger import LoggerCallback


class CSVLoggerCallback(LoggerCallback):
    """`progress.csv` is written for every trial without it: giving it changes nothing."""
