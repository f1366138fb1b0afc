"""Follows the kind of end-to-end image script that is copied from repository to repository: argparse, `--smoke-test`, and
`use_gpu=int(not smoke_test)`.

Pictures are made and written as PNG, read with `ray.data`, classified by a small convolutional network on two workers, and the
checkpoint is applied to pictures that were held out.
"""

import argparse
import json
import os

import numpy as np
import ray
import torch
from PIL import Image
from ray import train
from ray.air import RunConfig, ScalingConfig, session
from ray.air.checkpoint import Checkpoint
from ray.train.torch import TorchTrainer
from torch import nn


def draw(directory, count):
    """Bars that stand (class 1) or lie (class 0), with noise."""
    random = np.random.RandomState(0)
    os.makedirs(directory, exist_ok=True)
    for number in range(count):
        picture = random.randint(0, 60, size=(12, 12))
        at = random.randint(0, 9)
        if number % 2:
            picture[:, at : at + 3] += 180
        else:
            picture[at : at + 3, :] += 180
        Image.fromarray(picture.astype(np.uint8)).save(os.path.join(directory, f"{number % 2}_{number:03d}.png"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(6 * 5 * 5, 2)

    def forward(self, x):
        return self.fc1(torch.flatten(self.pool(torch.relu(self.conv1(x))), 1))


def preprocess(row):
    name = os.path.basename(row["path"])
    picture = row["image"].reshape(1, 12, 12).astype(np.float32) / 255
    return {"image": picture, "label": int(name[0]), "number": int(name[2:5])}


def train_loop_per_worker(config):
    torch.manual_seed(0)
    model = train.torch.prepare_model(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    shard = session.get_dataset_shard("train")
    for epoch in range(config["epochs"]):
        running, batches, seen = 0.0, 0, 0
        for batch in shard.iter_torch_batches(batch_size=config["batch_size"]):
            optimizer.zero_grad()
            loss = criterion(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            running, batches, seen = running + loss.item(), batches + 1, seen + len(batch["label"])
        state = model.module.state_dict() if hasattr(model, "module") else model.state_dict()
        session.report(
            {"running_loss": running / batches, "epoch": epoch, "seen": seen},
            checkpoint=Checkpoint.from_dict({"model": state}),
        )


def main(smoke_test):
    ray.init(num_cpus=4)
    draw("pictures", 120)
    dataset = ray.data.read_images(os.path.abspath("pictures"), include_paths=True).map(preprocess)
    train_dataset, test_dataset = dataset.train_test_split(test_size=0.2)
    trainer = TorchTrainer(
        train_loop_per_worker=train_loop_per_worker,
        train_loop_config={"batch_size": 8, "lr": 0.05, "epochs": 6},
        datasets={"train": train_dataset},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=int(not smoke_test)),
        run_config=RunConfig(name="images"),
    )
    result = trainer.fit()
    print("Last result:", result.metrics["running_loss"])
    assert result.metrics["seen"] == 48 and result.metrics["epoch"] == 5, result.metrics

    model = Net()
    model.load_state_dict(result.checkpoint.to_dict()["model"])
    model.eval()

    def predict(batch):
        with torch.no_grad():
            return {"predicted": model(torch.as_tensor(batch["image"])).argmax(1).numpy(), "label": batch["label"]}

    predictions = test_dataset.map_batches(predict, batch_format="numpy").to_pandas()
    accuracy = float((predictions["predicted"] == predictions["label"]).mean())
    assert len(predictions) == 24 and accuracy > 0.9, accuracy
    print(json.dumps({"classified": accuracy > 0.9, "tested": len(predictions), "seen": result.metrics["seen"]}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", dest="smoke_test", action="store_false", help="Without it this is a smoke test")
    args, _ = parser.parse_known_args()
    main(args.smoke_test)
