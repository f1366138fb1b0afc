"""Follows the quick starts of today's Ray Data: read, transform, split, iterate, write, with each format that a training set comes in.

The same rows go through CSV, JSON lines and Parquet; `streaming_split` feeds two threads, each of which trains on its half.
"""

import json
import os
import threading

import numpy as np
import ray
import torch


def make(row):
    number = row["id"]
    return {
        "id": number,
        "x": np.array([number / 100, (number % 7) / 7], dtype=np.float32),
        "name": f"row {number:03d}",
    }


def add_label(batch):
    batch["y"] = 3 * batch["x"][:, 0] - batch["x"][:, 1]
    return batch


class AddOffset:
    def __init__(self, offset):
        self.offset = offset

    def __call__(self, batch):
        batch["y"] = batch["y"] + self.offset
        return batch


def through_files(ds, directory):
    """The columns without arrays through each format."""
    plain = ds.drop_columns(["x"])
    plain.write_csv(os.path.join(directory, "csv"))
    plain.write_json(os.path.join(directory, "json"))
    plain.write_parquet(os.path.join(directory, "parquet"))
    readers = {"csv": ray.data.read_csv, "json": ray.data.read_json, "parquet": ray.data.read_parquet}
    found = {}
    for name, read in readers.items():
        rows = sorted(read(os.path.join(directory, name)).take_all(), key=lambda row: row["id"])
        assert [row["name"] for row in rows[:2]] == ["row 000", "row 002"], rows[:2]
        found[name] = [len(rows), round(sum(float(row["y"]) for row in rows), 3)]
    return found


def fit(shard, losses, counts, at):
    weight = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.3)
    for _ in range(3):
        rows, total = 0, 0.0
        for batch in shard.iter_torch_batches(batch_size=8, dtypes={"x": torch.float32, "y": torch.float32}):
            predicted = batch["x"] @ weight[:2] + weight[2]
            loss = ((predicted - batch["y"]) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows, total = rows + len(batch["y"]), total + loss.item()
        losses[at].append(total / rows)
        counts[at] = rows


def main():
    ray.init(num_cpus=4)
    ds = ray.data.range(200).map(make).filter(lambda row: row["id"] % 2 == 0)
    ds = ds.map_batches(add_label, batch_size=32).map_batches(AddOffset, fn_constructor_args=(0.5,), concurrency=1)
    assert ds.count() == 100 and set(ds.columns()) == {"id", "x", "name", "y"}, ds.columns()
    files = through_files(ds.materialize(), os.path.abspath("files"))

    train_ds, test_ds = ds.train_test_split(test_size=0.25)
    assert (train_ds.count(), test_ds.count()) == (75, 25)
    losses, counts = [[], []], [0, 0]
    shards = train_ds.select_columns(["x", "y"]).streaming_split(2, equal=True)
    threads = [threading.Thread(target=fit, args=(shard, losses, counts, at)) for at, shard in enumerate(shards)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [37, 37], counts
    assert sum(one[-1] for one in losses) < sum(one[0] for one in losses) / 2, losses
    tested = [len(batch["id"]) for batch in test_ds.iter_batches(batch_size=10, batch_format="numpy")]
    assert sum(tested) == 25 and max(tested) == 10, tested
    shuffled = train_ds.random_shuffle(seed=1).limit(10).take_all()
    assert len({row["id"] for row in shuffled}) == 10
    groups = ds.map(lambda row: {"seven": row["id"] % 7}).to_pandas()["seven"].value_counts().to_dict()
    print(json.dumps({"files": files, "tested": tested, "groups": sorted(groups.values()), "counts": counts}))


if __name__ == "__main__":
    main()
