"""A shorter way to one run, for tests.

Training functions are written inside the tests that use them: a function of a test module's top level would travel by
name, and every worker would import the test module for it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from carril.train import DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig

# For a run that is to end at its first failure, of whichever kind: machines have failures to spare by default.
NO_RESTART = FailureConfig(max_infrastructure_failures=0)


def trainer(
    function: Callable[..., Any], storage: Path, workers: int = 2, config: dict[str, Any] | None = None, **run: Any
) -> DataParallelTrainer:
    """A trainer whose run goes below `storage`; what else is given is for its RunConfig."""
    return DataParallelTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, **run),
    )


def fit(
    function: Callable[..., Any], storage: Path, workers: int = 2, config: dict[str, Any] | None = None, **run: Any
) -> Result:
    """Runs the function to its end."""
    return trainer(function, storage, workers, config, **run).fit()


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object per line, as Python reads them."""
    import json

    return [json.loads(line) for line in path.read_text().splitlines()]
