"""A second `fit()` in a driver that has done one: two workers, two reports each."""

import json
import os
import time

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def loop() -> None:
    for step in range(2):
        train.report({"step": step})


def fit(name: str) -> float:
    begin = time.perf_counter()
    DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name=name, storage_path=os.environ["BENCH_STORAGE"]),
    ).fit()
    return time.perf_counter() - begin


ray.init(num_cpus=2, include_dashboard=False)
# Named, since Ray's default names have a resolution of one second.
first, second = fit("first"), fit("second")
print("BENCH " + json.dumps({"first_s": first, "second_s": second}))
