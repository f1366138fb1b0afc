"""`ray.tune.schedulers.pbt`."""

from carril.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]
