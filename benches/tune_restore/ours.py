"""`Tuner.restore` of an experiment whose trials have all finished: with `fit()` in a new head, and with `get_results()`.

`fit()` starts the head, has it read what the experiment did, runs nothing, and gives the results of every trial.
"""

import json
import os
import time

import carril
from carril import tune

TRIALS = int(os.environ.get("BENCH_TRIALS", "10000"))
STORAGE = os.environ["BENCH_STORAGE"]


def trial(config: dict) -> None:
    tune.report({"loss": config["x"]})


def started() -> int:
    """How many trials were started so far."""
    with open(os.path.join(STORAGE, "search", "trials.jsonl")) as file:
        return sum('"event": "started"' in line for line in file)


grid = tune.Tuner(
    trial,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=TRIALS, reuse_actors=True),
    run_config=tune.RunConfig(name="search", storage_path=STORAGE, verbose=0),
).fit()
expected = [result.metrics["loss"] for result in grid]
assert len(expected) == started() == TRIALS
carril.shutdown()

begin = time.perf_counter()
fitted = tune.Tuner.restore(os.path.join(STORAGE, "search"), trial).fit()
fit_s = time.perf_counter() - begin
begin = time.perf_counter()
read = tune.Tuner.restore(os.path.join(STORAGE, "search"), trial).get_results()
results_s = time.perf_counter() - begin
for again in (fitted, read):
    assert [result.metrics["loss"] for result in again] == expected
assert started() == TRIALS, "a trial that had finished ran again"
print("BENCH " + json.dumps({"trials": TRIALS, "fit_s": fit_s, "results_s": results_s}))
