"""An exception in one rank until `fit()` raises, several times in one driver."""

import json
import os
import time

from carril import train

TIMES = int(os.environ.get("BENCH_TIMES", "20"))


def loop() -> None:
    if train.get_context().get_world_rank() == 1:
        raise ValueError(time.time())
    time.sleep(60)


def seconds() -> float:
    trainer = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"], verbose=0),
    )
    try:
        trainer.fit()
    except train.WorkerGroupError as error:
        return time.time() - float(error.worker_failures[1].args[0])
    raise AssertionError("it must fail")


print("BENCH " + json.dumps({"seconds": [seconds() for _ in range(TIMES)]}))
