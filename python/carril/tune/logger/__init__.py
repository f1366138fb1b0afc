"""Loggers: the files of a trial are written by the head; these are for what the user wants beside them."""

from carril.tune.logger.csv import CSVLoggerCallback
from carril.tune.logger.json import JsonLoggerCallback
from carril.tune.logger.logger import LoggerCallback
from carril.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"]
