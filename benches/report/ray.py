"""Reports of five metrics from two workers, from the first one to the moment when all are processed.

Ray at its best, in two generations: the current one keeps no files of metrics and takes reports at its polling rate;
the older one (RAY_TRAIN_V2_ENABLED=0) writes `result.json`, `progress.csv` and TensorBoard's events, of rank 0
alone. BENCH_RAY_V2 says which; the runner shows both.
"""

import json
import os
import statistics
import time

V2 = os.environ.get("BENCH_RAY_V2", "1") == "1"
os.environ["RAY_TRAIN_V2_ENABLED"] = "1" if V2 else "0"

import ray  # noqa: E402
from ray import train  # noqa: E402

if V2:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
else:
    from ray.train.data_parallel_trainer import DataParallelTrainer

COUNT = int(os.environ.get("BENCH_REPORTS", "20"))
STORAGE = os.environ["BENCH_STORAGE"]


def loop(config: dict) -> None:
    took = []
    first = time.time()
    for step in range(config["count"]):
        metrics = {"loss": 1.0 / (step + 1), "accuracy": 0.5, "lr": 0.001, "step": step, "norm": 2.5}
        begin = time.perf_counter_ns()
        train.report(metrics)
        took.append(time.perf_counter_ns() - begin)
    if train.get_context().get_world_rank() == 0:
        with open(os.path.join(config["storage"], "measured.json"), "w") as file:
            json.dump({"first": first, "last": time.time(), "median_us": statistics.median(took) / 1000}, file)


if V2:
    ray.init(num_cpus=2, include_dashboard=False)
    scaling = train.ScalingConfig(num_workers=2)
else:
    ray.init(num_cpus=3, include_dashboard=False)  # the older generation's coordinator wants a CPU of its own
    scaling = train.ScalingConfig(num_workers=2)
trainer = DataParallelTrainer(
    loop,
    train_loop_config={"count": COUNT, "storage": STORAGE},
    scaling_config=scaling,
    run_config=train.RunConfig(storage_path=STORAGE),
)
trainer.fit()
with open(os.path.join(STORAGE, "measured.json")) as file:
    measured = json.load(file)
# The return of the last `report` and not of `fit()`, which polls: the kinder of the two for Ray.
seconds = measured["last"] - measured["first"]
print(
    "BENCH "
    + json.dumps(
        {
            "reports": 2 * COUNT,
            "seconds": seconds,
            "per_second": 2 * COUNT / seconds,
            "median_us": measured["median_us"],
        }
    )
)
