"""A training run fails in the middle of an epoch and goes on from its checkpoint: from asking for the data to the next batch.

What is read after the restart is counted: it must be what had not been read before the checkpoint.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy

from carril import data, train

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, ROWS, paths, tell

STORAGE = os.environ["BENCH_STORAGE"]
HALF = ROWS // BATCH // 2


def loop(config: dict) -> None:
    goes_on = train.get_checkpoint() is not None
    began = time.perf_counter()
    batches = iter(train.get_dataset_shard("train").iter_batches(batch_size=config["batch"]))
    labels = next(batches)["label"]
    first = time.perf_counter() - began
    assert isinstance(labels, numpy.ndarray)
    rows = len(labels)
    if not goes_on:
        for _ in range(config["half"] - 1):
            rows += len(next(batches)["label"])
        train.report({"first_s": first, "rows": rows}, checkpoint=train.Checkpoint.from_dict({"rows": rows}))
        raise RuntimeError("in the middle of the epoch")
    rows += sum(len(batch["label"]) for batch in batches)
    before = train.get_checkpoint().to_dict()["rows"]
    Path(config["storage"], "went_on.json").write_text(json.dumps({"first": first, "rows": rows, "before": before}))


train.DataParallelTrainer(
    loop,
    train_loop_config={"batch": BATCH, "half": HALF, "storage": STORAGE},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=STORAGE, failure_config=train.FailureConfig(max_failures=1)),
    datasets={"train": data.read_parquet(paths()).random_shuffle()},
).fit()
went_on = json.loads(Path(STORAGE, "went_on.json").read_text())
assert went_on["before"] == HALF * BATCH, went_on
assert went_on["before"] + went_on["rows"] == ROWS, went_on
tell(seconds=went_on["first"])
