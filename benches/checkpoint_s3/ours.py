"""One checkpoint of one large file to an S3 server on this host, SYNC: the time of the call, which is all of it.

BENCH_GIVE=1 gives the directory away, so that the agent needs no copy of it.
"""

import json
import os
import sys
import time
from pathlib import Path

import carril
from carril import train

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import one_file, remove, stored_bytes
from runner.s3 import s3_server

STORAGE = os.environ["BENCH_STORAGE"]
SIZE = int(os.environ.get("BENCH_BYTES", "1000000000"))
GIVE = os.environ.get("BENCH_GIVE") == "1"


def loop(config: dict) -> float:
    begin = time.perf_counter()
    train.report(
        {"step": 0},
        checkpoint=train.Checkpoint.from_directory(config["source"]),
        delete_local_checkpoint_after_upload=config["give"],
    )
    return time.perf_counter() - begin


os.environ["TMPDIR"] = STORAGE
source, bucket = one_file(Path(STORAGE, "source"), SIZE), Path(STORAGE, "s3")
with s3_server(bucket) as uri:
    result = train.DataParallelTrainer(
        loop,
        train_loop_config={"source": str(source), "give": GIVE},
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(storage_path=uri),
    ).fit()
assert stored_bytes(bucket) == SIZE
print("BENCH " + json.dumps({"seconds": result.return_value}))
carril.shutdown()
remove(STORAGE)
