"""The same with Ray, until `report` has returned: it flushes nothing, and that is in its favour."""

import json
import os
import sys
import time
from pathlib import Path

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import many_files, stored_bytes

STORAGE = os.environ["BENCH_STORAGE"]
COUNT = int(os.environ.get("BENCH_FILES", "10000"))
SIZE = 2000


def loop(config: dict) -> None:
    begin = time.perf_counter()
    train.report({"step": 0}, checkpoint=train.Checkpoint.from_directory(config["source"]))
    with open(config["measured"], "w") as file:
        json.dump({"seconds": time.perf_counter() - begin}, file)


source, runs = many_files(Path(STORAGE, "source"), COUNT, SIZE), Path(STORAGE, "runs")
ray.init(num_cpus=2, include_dashboard=False)
DataParallelTrainer(
    loop,
    train_loop_config={"source": str(source), "measured": str(Path(STORAGE, "measured.json"))},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=str(runs), name="run"),
).fit()
assert stored_bytes(runs) == COUNT * SIZE
print("BENCH " + Path(STORAGE, "measured.json").read_text())
# Nothing is deleted before the end of the bench: ext4 makes files slowly where many were deleted a minute ago.
