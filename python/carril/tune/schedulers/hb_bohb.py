"""HyperBand as BOHB needs it."""

from carril.tune.schedulers.hyperband import HyperBandScheduler


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand with one bracket at a time, so that `TuneBOHB` has learnt from it before the next one begins."""

    _for_bohb = True
