"""Trivial trials a second where a process serves one after the other: one report each, two trials at a time.

Every trial has its directory with all of its files. What is timed is a second search: the first one starts head and
zygote.
"""

import json
import os
import time

import carril
from carril import tune

TRIALS = int(os.environ.get("BENCH_TRIALS", "10000"))


def trial(config: dict) -> None:
    tune.report({"loss": config["x"]})


def search(name: str, trials: int) -> float:
    begin = time.perf_counter()
    grid = tune.Tuner(
        trial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, reuse_actors=True),
        run_config=tune.RunConfig(name=name, storage_path=os.environ["BENCH_STORAGE"], verbose=0),
    ).fit()
    took = time.perf_counter() - begin
    assert len(grid) == trials and all(result.metrics["loss"] == result.config["x"] for result in grid)
    return took


carril.init(num_cpus=2)
search("first", 2)
seconds = search("second", TRIALS)
print("BENCH " + json.dumps({"trials": TRIALS, "seconds": seconds, "per_second": TRIALS / seconds}))
