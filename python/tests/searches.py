"""Searches for tests: a function, a way to search it, and a searcher of one's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from carril import tune
from carril.train import RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune.search import Searcher


def quadratic() -> Callable[[dict[str, Any]], None]:
    def train(config: dict[str, Any]) -> None:
        for step in range(config.get("steps", 3)):
            tune.report({"loss": (config["x"] - 0.3) ** 2 + 1 / (step + 1), "step": step})

    return train


def search(storage: Path, trainable: Any, space: dict[str, Any], **options: Any) -> Any:
    run = {
        name: options.pop(name)
        for name in ("stop", "callbacks", "checkpoint_config", "failure_config")
        if name in options
    }
    name = options.pop("name", "search")
    return Tuner(
        trainable,
        param_space=space,
        tune_config=TuneConfig(**{"metric": "loss", "mode": "min", **options}),
        run_config=RunConfig(name=name, storage_path=str(storage), verbose=0, **run),
    ).fit()


class Halving(Searcher):
    """Suggests half of the best so far."""

    def __init__(self) -> None:
        super().__init__()
        self.best, self.seen = 8.0, []

    def suggest(self, trial_id: str) -> Any:
        return Searcher.FINISHED if self.best < 1 else {"x": self.best}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.seen.append(trial_id)
        self.best /= 2
