"""A driver that has trained once and is idle: the runner looks at the processes beside it, then closes its input."""

import os
import sys

from carril import train


def loop() -> None:
    train.report({"step": 0})


train.DataParallelTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
).fit()
print("IDLE", flush=True)
sys.stdin.read()
