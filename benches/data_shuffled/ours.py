"""Parquet as batches of torch tensors, shuffled (unless BENCH_ORDERED), split over the two workers of a training run."""

import json
import os
import sys
import time
from pathlib import Path

import torch

from carril import data, train

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.epochs import EPOCHS, rate
from runner.passes import BATCH, paths, tell

STORAGE = os.environ["BENCH_STORAGE"]


def loop(config: dict) -> None:
    shard = train.get_dataset_shard("train")
    noted = []
    for _ in range(config["epochs"]):
        begin, rows = time.time(), 0
        for batch in shard.iter_torch_batches(batch_size=config["batch"]):
            assert isinstance(batch["x0"], torch.Tensor)
            rows += len(batch["label"])
        noted.append({"begin": begin, "end": time.time(), "rows": rows})
    name = f"epochs-{train.get_context().get_world_rank()}.json"
    Path(config["storage"], name).write_text(json.dumps(noted))


dataset = data.read_parquet(paths())
if "BENCH_ORDERED" not in os.environ:
    dataset = dataset.random_shuffle()
train.DataParallelTrainer(
    loop,
    train_loop_config={"epochs": EPOCHS, "batch": BATCH, "storage": STORAGE},
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=STORAGE),
    datasets={"train": dataset},
).fit()
tell(**rate(STORAGE))
