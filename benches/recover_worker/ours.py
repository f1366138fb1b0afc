"""kill -9 of a worker until the function runs again on both ranks, several times in one run: no torch."""

import json
import os
import signal
import time

from carril import train

KILLS = int(os.environ.get("BENCH_KILLS", "20"))
times = os.path.join(os.environ["BENCH_STORAGE"], "times")


def read(name: object) -> list[float]:
    if not os.path.exists(f"{times}.{name}"):
        return []
    with open(f"{times}.{name}") as file:
        return [float(line) for line in file]


def write(name: object) -> None:
    with open(f"{times}.{name}", "a") as file:
        file.write(f"{time.time()}\n")


def loop() -> None:
    rank = train.get_context().get_world_rank()
    write(rank)
    begun = len(read(rank))
    train.collective.barrier()
    if begun <= KILLS and rank == 1:
        write("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    if begun <= KILLS:
        time.sleep(60)


train.DataParallelTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(
        storage_path=os.environ["BENCH_STORAGE"],
        failure_config=train.FailureConfig(max_infrastructure_failures=-1),
        verbose=0,
    ),
).fit()
again = [max(pair) for pair in zip(read(0)[1:], read(1)[1:], strict=True)]
print("BENCH " + json.dumps({"seconds": [b - a for a, b in zip(read("killed"), again, strict=True)]}))
