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


# Runs of this process that failed, by storage and name. What made them fail is mostly in their config, and is left out of the
# next one: without `resume=True` that would be refused.
_failed: set[tuple[str, str]] = set()


def trainer(
    function: Callable[..., Any], storage: Path, workers: int = 2, config: dict[str, Any] | None = None, **run: Any
) -> DataParallelTrainer:
    """A trainer whose run goes below `storage`; what else is given is for its RunConfig."""
    if "name" in run and (str(storage), str(run["name"])) in _failed:
        run.setdefault("resume", True)
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
    made, key = trainer(function, storage, workers, config, **run), (str(storage), str(run.get("name")))
    _failed.add(key)
    result = made.fit()
    _failed.discard(key)
    return result


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object per line, as Python reads them."""
    import json

    return [json.loads(line) for line in path.read_text().splitlines()]
