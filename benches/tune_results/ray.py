"""Results of five metrics from 16 trials at once, from the first one to the last.

All loggers are on, as they are by default: `result.json`, `progress.csv` and TensorBoard's events of each trial. The end
is that of the last report and not of `fit()`, which is the kinder of the two for Ray.
"""

import json
import os
import time

import ray
from ray import tune

COUNT = int(os.environ.get("BENCH_REPORTS", "200"))
TRIALS = 16
STORAGE = os.environ["BENCH_STORAGE"]


def trial(config: dict) -> None:
    first = time.time()
    for step in range(config["count"]):
        tune.report({"loss": config["x"], "accuracy": 0.5, "lr": 0.001, "step": step, "norm": 2.5})
    with open(os.path.join(STORAGE, f"{tune.get_context().get_trial_id()}.json"), "w") as file:
        json.dump({"first": first, "last": time.time()}, file)


ray.init(num_cpus=TRIALS, include_dashboard=False)
grid = tune.Tuner(
    trial,
    param_space={"x": tune.uniform(0, 1), "count": COUNT},
    tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=TRIALS),
    run_config=tune.RunConfig(name="results", storage_path=STORAGE, verbose=0),
).fit()
assert [result.metrics["training_iteration"] for result in grid] == [COUNT] * TRIALS
measured = []
for name in os.listdir(STORAGE):
    if name.endswith(".json"):
        with open(os.path.join(STORAGE, name)) as file:
            measured.append(json.load(file))
assert len(measured) == TRIALS
seconds = max(one["last"] for one in measured) - min(one["first"] for one in measured)
print("BENCH " + json.dumps({"results": TRIALS * COUNT, "seconds": seconds, "per_second": TRIALS * COUNT / seconds}))
