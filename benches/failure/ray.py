"""An exception in one rank until `fit()` raises, several times in one driver."""

import json
import os
import time

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

TIMES = int(os.environ.get("BENCH_TIMES", "3"))


def loop() -> None:
    if train.get_context().get_world_rank() == 1:
        raise ValueError(time.time())
    time.sleep(60)


def seconds(number: int) -> float:
    trainer = DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name=f"failure{number}", storage_path=os.environ["BENCH_STORAGE"]),
    )
    try:
        trainer.fit()
    except train.WorkerGroupError as error:
        return time.time() - float(error.worker_failures[1].args[0])
    raise AssertionError("it must fail")


ray.init(num_cpus=2, include_dashboard=False)
print("BENCH " + json.dumps({"seconds": [seconds(number) for number in range(TIMES)]}))
