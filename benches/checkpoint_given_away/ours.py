"""Large checkpoints whose directories are given away: how long the call takes, and that the commit follows."""

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
CALLS = 3


def loop(config: dict) -> dict:
    calls, commits = [], []
    for step, source in enumerate(config["sources"]):
        begin = time.perf_counter()
        train.report(
            {"step": step},
            checkpoint=train.Checkpoint.from_directory(source),
            delete_local_checkpoint_after_upload=True,
        )
        calls.append(time.perf_counter() - begin)
        assert len(train.get_all_reported_checkpoints()) == step + 1
        commits.append(time.perf_counter() - begin)
    return {"call_ms": 1000 * max(calls), "commit_s": max(commits)}


sources = [one_file(Path(STORAGE, f"source-{number}"), SIZE) for number in range(CALLS)]
result = train.DataParallelTrainer(
    loop,
    train_loop_config={"sources": [str(source) for source in sources]},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=str(Path(STORAGE, "runs"))),
).fit()
assert stored_bytes(Path(result.path)) == CALLS * SIZE and not any(source.exists() for source in sources)
print("BENCH " + json.dumps(result.return_value))
carril.shutdown()
remove(STORAGE)
