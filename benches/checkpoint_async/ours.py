"""ASYNC to a store that takes 50 MB a second: how long a call blocks, and what the upload costs in CPU time.

The snapshot of a directory that is given away, as ASYNC does unless told otherwise, is a rename: so all of the call
counts. The CPU time is that of the head-and-agent, which uploads, from the return of the last call to the last commit.
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
RATE = 50e6
CALLS = 2


def loop(config: dict) -> dict:
    def cpu_s() -> float:
        with open(f"/proc/{os.environ['CARRIL_AGENT_PID']}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    calls = []
    for step, source in enumerate(config["sources"]):
        begin = time.perf_counter()
        train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(source), checkpoint_upload_mode="ASYNC")
        calls.append(time.perf_counter() - begin)
    begin, used = time.perf_counter(), cpu_s()
    assert len(train.get_all_reported_checkpoints()) == len(calls)
    seconds = time.perf_counter() - begin
    return {"call_ms": 1000 * max(calls), "upload_s": seconds, "cpu_percent": 100 * (cpu_s() - used) / seconds}


# The agent spools in its temporary place: with the payload on the same disk a rename is all that it needs.
os.environ["TMPDIR"] = STORAGE
sources = [one_file(Path(STORAGE, f"source-{number}"), SIZE) for number in range(CALLS)]
bucket = Path(STORAGE, "s3")
with s3_server(bucket, RATE) as uri:
    result = train.DataParallelTrainer(
        loop,
        train_loop_config={"sources": [str(source) for source in sources]},
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(storage_path=uri),
    ).fit()
assert stored_bytes(bucket) == CALLS * SIZE
assert result.return_value["upload_s"] > 0.8 * CALLS * SIZE / RATE, "the store was slow"
print("BENCH " + json.dumps(result.return_value))
carril.shutdown()
remove(STORAGE)
