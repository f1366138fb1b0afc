"""A second `fit()` in a driver that has done one: two workers, two reports each."""

import json
import os
import time

from carril import train


def loop() -> None:
    for step in range(2):
        train.report({"step": step})


def fit() -> float:
    begin = time.perf_counter()
    train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
    ).fit()
    return time.perf_counter() - begin


first, second = fit(), fit()
print("BENCH " + json.dumps({"first_s": first, "second_s": second}))
