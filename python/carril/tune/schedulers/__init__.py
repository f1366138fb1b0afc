"""Schedulers: which trials go on, pause, stop, or go on from where another one is."""

from typing import Any

from carril.exceptions import ConfigError
from carril.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from carril.tune.schedulers.hb_bohb import HyperBandForBOHB
from carril.tune.schedulers.hyperband import HyperBandScheduler
from carril.tune.schedulers.median_stopping_rule import MedianStoppingRule
from carril.tune.schedulers.pb2 import PB2
from carril.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from carril.tune.schedulers.resource_changing_scheduler import (
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceChangingScheduler,
)
from carril.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "PB2",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]

_BY_NAME: dict[str, type[TrialScheduler]] = {
    "asha": ASHAScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "fifo": FIFOScheduler,
    "hb_bohb": HyperBandForBOHB,
    "hyperband": HyperBandScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "pb2": PB2,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "resource_changing": ResourceChangingScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """A scheduler by its name, so that a script can try one after the other with the same arguments.

    Arguments that this one does not have are left out, with a warning that names them.
    """
    kind = _BY_NAME.get(scheduler.lower() if isinstance(scheduler, str) else "")
    if kind is None:
        from carril._internal.near import near

        close = near(str(scheduler).lower(), _BY_NAME)
        hints = [f"did you mean {close!r}?"] if close is not None else []
        raise ConfigError(f"there is no scheduler {scheduler!r}: it must be one of {', '.join(_BY_NAME)}", hints=hints)
    return kind(**_without_unknown(kind, kwargs))


def _without_unknown(kind: type[TrialScheduler], given: dict[str, Any]) -> dict[str, Any]:
    import inspect
    import warnings

    # The constructor of `FIFOScheduler` is that of every object.
    known = inspect.signature(kind).parameters if kind is not FIFOScheduler else {}
    unknown = [name for name in given if name not in known]
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        warnings.warn(f"`{kind.__name__}` has no {names}: left out", stacklevel=3)
    return {name: value for name, value in given.items() if name in known}
