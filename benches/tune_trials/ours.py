"""Trivial trials a second, each in a process of its own: three reports, two trials at a time.

What is timed is a second search: the first one starts head and zygote.
"""

import json
import os
import time

import carril
from carril import tune

TRIALS = int(os.environ.get("BENCH_TRIALS", "200"))
REPORTS = 3


def trial(config: dict) -> None:
    for step in range(REPORTS):
        tune.report({"loss": config["x"] / (step + 1)})


def search(name: str, trials: int) -> float:
    begin = time.perf_counter()
    grid = tune.Tuner(
        trial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials),
        run_config=tune.RunConfig(name=name, storage_path=os.environ["BENCH_STORAGE"], verbose=0),
    ).fit()
    took = time.perf_counter() - begin
    assert [result.metrics["training_iteration"] for result in grid] == [REPORTS] * trials
    return took


carril.init(num_cpus=2)
search("first", 2)
seconds = search("second", TRIALS)
print("BENCH " + json.dumps({"trials": TRIALS, "seconds": seconds, "per_second": TRIALS / seconds}))
