"""Two workers that have reported and wait: the runner counts all threads, then closes the driver's input."""

import os
import sys
import threading
import time

from carril import train

STORAGE = os.environ["BENCH_STORAGE"]
END = os.path.join(STORAGE, "end")


def loop(config: dict) -> None:
    train.report({"step": 0})
    open(config["end"] + f".rank{train.get_context().get_world_rank()}", "w").close()
    while not os.path.exists(config["end"]):
        time.sleep(0.05)


def follow() -> None:
    """Says IDLE when both workers are in their loop, and lets them go when the runner has closed our input."""
    while not all(os.path.exists(f"{END}.rank{rank}") for rank in range(2)):
        time.sleep(0.05)
    print("IDLE", flush=True)
    sys.stdin.read()
    open(END, "w").close()


threading.Thread(target=follow, daemon=True).start()
train.DataParallelTrainer(
    loop,
    train_loop_config={"end": END},
    scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    run_config=train.RunConfig(storage_path=STORAGE),
).fit()
