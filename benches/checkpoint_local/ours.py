"""One checkpoint of one large file on a local disk, from the call of `report` until it is committed and flushed."""

import json
import os
import sys
import time
from pathlib import Path

import carril
from carril import train

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import one_file, remove, stored_bytes

STORAGE = os.environ["BENCH_STORAGE"]
SIZE = int(os.environ.get("BENCH_BYTES", "1000000000"))


def loop(config: dict) -> dict:
    begin = time.perf_counter()
    train.report({"step": 0}, checkpoint=train.Checkpoint.from_directory(config["source"]))
    returned = time.perf_counter() - begin
    # A checkpoint that is reported here has its manifest, and both are flushed.
    assert len(train.get_all_reported_checkpoints()) == 1
    return {"returned_s": returned, "seconds": time.perf_counter() - begin}


source = one_file(Path(STORAGE, "source"), SIZE)
result = train.DataParallelTrainer(
    loop,
    train_loop_config={"source": str(source)},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=str(Path(STORAGE, "runs"))),
).fit()
assert stored_bytes(Path(result.path)) == SIZE
print("BENCH " + json.dumps(result.return_value))
carril.shutdown()
remove(STORAGE)
