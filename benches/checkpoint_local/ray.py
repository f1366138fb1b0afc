"""The same with Ray: `report` copies and does not flush, so both times are taken, without and with `fsync` of the files."""

import json
import os
import sys
import time
from pathlib import Path

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import one_file, remove, stored_bytes

STORAGE = os.environ["BENCH_STORAGE"]
SIZE = int(os.environ.get("BENCH_BYTES", "1000000000"))


def loop(config: dict) -> None:
    begin = time.perf_counter()
    train.report({"step": 0}, checkpoint=train.Checkpoint.from_directory(config["source"]))
    returned = time.perf_counter() - begin
    for path in Path(config["runs"]).rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    with open(config["measured"], "w") as file:
        json.dump({"returned_s": returned, "seconds": time.perf_counter() - begin}, file)


source, runs = one_file(Path(STORAGE, "source"), SIZE), Path(STORAGE, "runs")
ray.init(num_cpus=2, include_dashboard=False)
DataParallelTrainer(
    loop,
    train_loop_config={"source": str(source), "runs": str(runs), "measured": str(Path(STORAGE, "measured.json"))},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=str(runs), name="run"),
).fit()
assert stored_bytes(runs) == SIZE
print("BENCH " + Path(STORAGE, "measured.json").read_text())
remove(STORAGE)
