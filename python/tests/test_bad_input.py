"""Bad input: each case is one clear error, before anything is started, and its text is one that a user can act on.

The texts are in `snapshots/bad_input.txt`, one after the other, to be read as a user would.
"""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from snapshots import check

from carril.exceptions import (
    CarrilError,
    ConfigError,
    ConfigTypeError,
    NotAvailableError,
    PlacementError,
    RunExistsError,
    StorageError,
)
from carril.train import CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("head")


class Case(NamedTuple):
    """One thing to do wrong, in the words of the one who does it. `storage` is for those that reach the storage."""

    title: str
    error: type[Exception]
    do: Callable[[Path], Any]


def nothing() -> None: ...


def with_config(config: dict[str, Any]) -> None: ...


def two_parameters(config: dict[str, Any], epochs: int) -> None: ...


def fit(storage: Path, function: Any = nothing, run: dict[str, Any] | None = None, **arguments: Any) -> Any:
    given = {"storage_path": storage, "verbose": 0, **(run or {})}
    return DataParallelTrainer(function, run_config=given, **arguments).fit()


def _captures_a_file(storage: Path) -> Any:
    with open(os.devnull, "w") as log:

        def writes() -> None:
            log.write("step")

        return fit(storage, writes)


def _uses_a_global(storage: Path) -> Any:
    """As a script's own function does, whose module is `__main__`: it travels by value, with the globals it uses."""
    script: dict[str, Any] = {"__name__": "__main__", "LOCK": threading.Lock()}
    exec("def inner():\n    LOCK.acquire()\ndef loop():\n    inner()", script)
    return fit(storage, script["loop"])


def _existing_run(storage: Path) -> Any:
    fit(storage, run={"name": "done"})
    return fit(storage, run={"name": "done"})


def _unwritable(storage: Path) -> Any:
    (storage / "file").write_text("")
    return fit(storage / "file")


CASES = [
    Case("an unknown field", ConfigTypeError, lambda storage: ScalingConfig(num_worker=2)),  # type: ignore[call-arg]
    Case("an unknown field in a dict", ConfigTypeError, lambda storage: fit(storage, scaling_config={"workers": 2})),
    Case("a field like no other", ConfigTypeError, lambda storage: RunConfig(colour="red")),  # type: ignore[call-arg]
    Case("a negative number of workers", ConfigError, lambda storage: ScalingConfig(num_workers=-1)),
    Case("a number of workers in words", ConfigTypeError, lambda storage: ScalingConfig(num_workers="two")),  # type: ignore[arg-type]
    Case("half a worker", ConfigTypeError, lambda storage: ScalingConfig(num_workers=1.5)),  # type: ignore[arg-type]
    Case("use_gpu that is no bool", ConfigTypeError, lambda storage: ScalingConfig(use_gpu="yes")),  # type: ignore[arg-type]
    Case("resources without use_gpu", ConfigError, lambda storage: ScalingConfig(resources_per_worker={"GPU": 1})),
    Case("a negative resource", ConfigError, lambda storage: ScalingConfig(resources_per_worker={"CPU": -1})),
    Case("an unknown strategy", ConfigError, lambda storage: ScalingConfig(placement_strategy="NEAR")),
    Case(
        "GPUs where there are none",
        PlacementError,
        lambda storage: fit(storage, scaling_config=ScalingConfig(num_workers=2, use_gpu=True)),
    ),
    Case(
        "more CPUs than there are",
        PlacementError,
        lambda storage: fit(storage, scaling_config=ScalingConfig(num_workers=9)),
    ),
    Case(
        "a resource that no node has",
        PlacementError,
        lambda storage: fit(storage, scaling_config=ScalingConfig(resources_per_worker={"license": 1})),
    ),
    Case("a config of another kind", ConfigTypeError, lambda storage: fit(storage, scaling_config=RunConfig())),
    Case("a config that is a number", ConfigTypeError, lambda storage: fit(storage, scaling_config=4)),
    Case("a function with two required arguments", ConfigError, lambda storage: fit(storage, two_parameters)),
    Case("no function", ConfigTypeError, lambda storage: fit(storage, "train.py")),
    Case("a function that was called", ConfigError, lambda storage: fit(storage, nothing())),  # type: ignore[func-returns-value]
    Case(
        "a train_loop_config that is a list",
        ConfigTypeError,
        lambda storage: fit(storage, with_config, train_loop_config=[1, 2]),
    ),
    Case("a global that cannot be sent", ConfigError, _uses_a_global),
    Case("an open file that cannot be sent", ConfigError, _captures_a_file),
    Case(
        "a config that cannot be sent",
        ConfigError,
        lambda storage: fit(storage, with_config, train_loop_config={"lr": 0.1, "lock": threading.Lock()}),
    ),
    Case("a storage path that cannot be written", StorageError, _unwritable),
    Case(
        "a storage path of an unknown kind",
        ConfigError,
        lambda storage: fit(storage, run={"storage_path": "hdfs://b/p"}),
    ),
    Case("a URI without its colon", ConfigError, lambda storage: fit(storage, run={"storage_path": "s3//bucket/runs"})),
    Case("a URI without its slashes", ConfigError, lambda storage: fit(storage, run={"storage_path": "gs:bucket"})),
    Case("a URI in capitals", ConfigError, lambda storage: fit(storage, run={"storage_path": "S3://bucket/runs"})),
    Case("a storage path that is a number", ConfigTypeError, lambda storage: fit(storage, run={"storage_path": 3})),
    Case("a run name with a slash", ConfigError, lambda storage: fit(storage, run={"name": "a/b"})),
    Case("a run name that is a number", ConfigTypeError, lambda storage: fit(storage, run={"name": 7})),
    Case("a very long run name", ConfigError, lambda storage: fit(storage, run={"name": "x" * 300})),
    Case("a run name that is taken", RunExistsError, _existing_run),
    Case("verbose that is not a number", ConfigTypeError, lambda storage: RunConfig(verbose="loud")),  # type: ignore[arg-type]
    Case("a hang_timeout of zero", ConfigError, lambda storage: RunConfig(hang_timeout=0)),
    Case("a hang_timeout in words", ConfigTypeError, lambda storage: RunConfig(hang_timeout="soon")),  # type: ignore[arg-type]
    Case("an unknown reduction", ConfigError, lambda storage: RunConfig(metrics_reduce={"loss": "median"})),
    Case("callbacks that are no list", ConfigTypeError, lambda storage: RunConfig(callbacks=3)),  # type: ignore[arg-type]
    Case("a callback that is none", ConfigError, lambda storage: fit(storage, run={"callbacks": [print]})),
    Case("max_failures in words", ConfigTypeError, lambda storage: FailureConfig(max_failures="many")),  # type: ignore[arg-type]
    Case("a grace that is negative", ConfigError, lambda storage: FailureConfig(preemption_grace_s=-1)),
    Case(
        "a limit for preemptions, which comes later",
        NotAvailableError,
        lambda storage: fit(storage, run={"failure_config": {"max_preemption_failures": 2}}),
    ),
    Case("no checkpoints to keep", ConfigError, lambda storage: CheckpointConfig(num_to_keep=0)),
    Case("an order that is none", ConfigError, lambda storage: CheckpointConfig(checkpoint_score_order="best")),
    Case(
        "a backend of another framework",
        ConfigTypeError,
        lambda storage: DataParallelTrainer(nothing, backend_config={"backend": "gloo"}),  # type: ignore[arg-type]
    ),
    Case(
        "metrics that are not a dict",
        TypeError,
        lambda storage: fit(
            storage, lambda: __import__("carril.train").train.report([1]), scaling_config={"num_workers": 0}
        ),
    ),
    Case(
        "a checkpoint that is a path",
        TypeError,
        lambda storage: fit(
            storage,
            lambda: __import__("carril.train").train.report({}, checkpoint="/tmp"),
            scaling_config={"num_workers": 0},
        ),
    ),
]


def told(case: Case, storage: Path) -> Exception:
    with pytest.raises(case.error) as caught:
        case.do(storage)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_bad_input_is_one_clear_error_before_anything_starts(case: Case, storage: Path) -> None:
    error = told(case, storage)
    left = {path.name for path in storage.iterdir()} - {"done", "file"}
    assert not left, "a run that is refused leaves no directory"
    first, *hints = str(error).splitlines()
    assert not first.endswith(".") and not first[0].isupper(), first
    assert "`" in first or isinstance(error, PlacementError), "the thing is named in backticks"
    assert all(line.startswith("hint: ") for line in hints), hints
    assert isinstance(error, CarrilError)


def test_the_texts_are_these(storage: Path) -> None:
    texts = []
    for case in CASES:
        place = storage / re.sub(r"\W", "_", case.title)
        place.mkdir()
        error = told(case, place)
        texts.append(f"# {case.title}\n{type(error).__name__}: {error}".replace(str(place), "STORAGE"))
    check("bad_input", "\n\n".join(texts))
