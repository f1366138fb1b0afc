"""Follows the kind of page on feeding `TorchTrainer` from Ray Data: a preprocessing pipeline, a split, two data sets.

Rows are made, scaled and shuffled; each rank reads its shard with `iter_torch_batches`, and rank counts are added up.
"""

import os
import tempfile

import numpy as np
import pandas as pd
import ray
import torch
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn


def make(rows):
    random = np.random.default_rng(1)
    frame = pd.DataFrame(random.normal(size=(rows, 3)), columns=["a", "b", "c"])
    frame["y"] = 2 * frame["a"] - frame["b"] + 0.5
    frame["id"] = np.arange(rows)
    return ray.data.from_pandas(frame)


def pack(batch):
    features = np.stack([batch["a"], batch["b"], batch["c"]], axis=1).astype(np.float32)
    return {"x": features, "y": batch["y"].astype(np.float32), "id": batch["id"]}


def train_loop(config):
    model = prepare_model(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shard = ray.train.get_dataset_shard("train")
    valid = ray.train.get_dataset_shard("valid")
    for epoch in range(config["epochs"]):
        seen = []
        for batch in shard.iter_torch_batches(batch_size=32, local_shuffle_buffer_size=64, local_shuffle_seed=epoch):
            loss = nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.extend(batch["id"].tolist())
        with torch.no_grad():
            errors = [
                nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"]).item()
                for batch in valid.iter_torch_batches(batch_size=50)
            ]
        rows = torch.tensor([len(set(seen)), sum(seen)])
        torch.distributed.all_reduce(rows)
        metrics = {
            "epoch": epoch,
            "rows": int(rows[0]),
            "ids": int(rows[1]),
            "valid_batches": len(errors),
            "valid": float(np.mean(errors)),
        }
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(directory, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(directory)
            ray.train.report(metrics, checkpoint=checkpoint)


def main():
    ray.init(num_cpus=4)
    ds = make(1000).map_batches(pack, batch_format="numpy")
    train_ds, valid_ds = ds.train_test_split(test_size=0.2)
    ids = sum(row["id"] for row in train_ds.select_columns(["id"]).iter_rows())
    result = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": 5},
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": train_ds, "valid": valid_ds},
        dataset_config=DataConfig(datasets_to_split=["train"]),
        run_config=RunConfig(name="data"),
    ).fit()
    assert train_ds.count() == 800 and valid_ds.count() == 200
    assert result.metrics["rows"] == 800 and result.metrics["ids"] == ids, result.metrics
    assert result.metrics["valid_batches"] == 4, result.metrics
    assert result.metrics["valid"] < 0.05, result.metrics
    assert len(result.metrics_dataframe) == 5
    print("each of 800 rows once an epoch, validation below 0.05")


if __name__ == "__main__":
    main()
