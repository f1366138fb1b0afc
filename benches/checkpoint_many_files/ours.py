"""One checkpoint of many small files on a local disk, from the call of `report` until it is committed and flushed."""

import json
import os
import sys
import time
from pathlib import Path

import carril
from carril import train

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import many_files, stored_bytes

STORAGE = os.environ["BENCH_STORAGE"]
COUNT = int(os.environ.get("BENCH_FILES", "10000"))
SIZE = 2000


def loop(config: dict) -> dict:
    begin = time.perf_counter()
    train.report({"step": 0}, checkpoint=train.Checkpoint.from_directory(config["source"]))
    returned = time.perf_counter() - begin
    assert len(train.get_all_reported_checkpoints()) == 1
    return {"returned_s": returned, "seconds": time.perf_counter() - begin}


source = many_files(Path(STORAGE, "source"), COUNT, SIZE)
result = train.DataParallelTrainer(
    loop,
    train_loop_config={"source": str(source)},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=str(Path(STORAGE, "runs"))),
).fit()
assert stored_bytes(Path(result.path)) == COUNT * SIZE
print("BENCH " + json.dumps(result.return_value))
carril.shutdown()
# Nothing is deleted before the end of the bench: ext4 makes files slowly where many were deleted a minute ago.
