"""Follows the kind of page of Ray 2.7 on offline inference: a class in `map_batches`, `ActorPoolStrategy`, Parquet in and out.

Rows are written as Parquet, read back, filtered and scored by a model that each actor loads once; the scores are written.
"""

import json
import os

import numpy as np
import pandas as pd
import ray
import torch
from ray.data import ActorPoolStrategy
from torch import nn


def write_input(path, rows=240):
    random = np.random.default_rng(9)
    frame = pd.DataFrame({"id": np.arange(rows), "a": random.normal(size=rows), "b": random.normal(size=rows)})
    frame["group"] = np.where(frame["id"] % 3 == 0, "skip", "keep")
    ray.data.from_pandas([frame[:100], frame[100:]]).write_parquet(path)
    return frame


def save_model(path):
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, -1.0]]))
        model.bias.fill_(0.5)
    torch.save(model.state_dict(), path)


class TorchModel:
    def __init__(self, path, offset=0.0):
        self.model = nn.Linear(2, 1)
        self.model.load_state_dict(torch.load(path))
        self.model.eval()
        self.offset = offset
        self.batches = 0

    def __call__(self, batch):
        self.batches += 1
        inputs = torch.as_tensor(np.stack([batch["a"], batch["b"]], axis=1), dtype=torch.float32)
        with torch.inference_mode():
            score = self.model(inputs).squeeze(1).numpy() + self.offset
        return {"id": batch["id"], "score": score, "first": np.full(len(score), self.batches == 1)}


def normalize(row):
    row["a"] = (row["a"] - 0.1) / 2
    return row


def main():
    ray.init(num_cpus=4)
    frame = write_input(os.path.abspath("input"))
    save_model("model.pt")
    ds = ray.data.read_parquet(os.path.abspath("input"))
    assert ds.count() == 240
    assert ds.schema().names == ["id", "a", "b", "group"], ds.schema()
    ds = ds.filter(lambda row: row["group"] == "keep").map(normalize).drop_columns(["group"])
    predictions = ds.map_batches(
        TorchModel,
        fn_constructor_args=(os.path.abspath("model.pt"),),
        fn_constructor_kwargs={"offset": 10.0},
        batch_size=20,
        compute=ActorPoolStrategy(size=2),
    ).materialize()
    rows = sorted(predictions.take_all(), key=lambda row: row["id"])
    assert len(rows) == 160 and [row["id"] for row in rows[:4]] == [1, 2, 4, 5]
    for row in rows:
        expected = 2 * (frame["a"][row["id"]] - 0.1) / 2 - frame["b"][row["id"]] + 10.5
        assert abs(row["score"] - expected) < 1e-5, row

    best = max(rows, key=lambda row: row["score"])
    predictions.select_columns(["id", "score"]).repartition(2).write_parquet(os.path.abspath("output"))
    predictions.select_columns(["id", "score"]).write_csv(os.path.abspath("output_csv"))
    again = ray.data.read_parquet(os.path.abspath("output"))
    scores = again.to_pandas()["score"]
    assert abs(scores.sum() - sum(float(row["score"]) for row in rows)) < 1e-2, scores.sum()
    table = pd.concat(pd.read_csv(os.path.join("output_csv", name)) for name in os.listdir("output_csv"))
    assert sorted(table["id"]) == [row["id"] for row in rows]
    summary = {"rows": again.count(), "best": int(best["id"]), "mean": round(float(scores.mean()), 4)}
    summary["files"] = len(os.listdir("output"))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
