"""Follows the kind of page on fault tolerance in Ray 2.3: a worker fails once, and the trainer restarts from its checkpoint.

The function raises on its first life after two epochs; the second life loads the checkpoint that `session` hands over.
"""

import os
import tempfile

import ray
import torch
from ray.air import session
from ray.air.checkpoint import Checkpoint
from ray.air.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchCheckpoint, TorchTrainer
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)


def xor():
    inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    return inputs, torch.tensor([[0.0], [1.0], [1.0], [0.0]])


def train_loop(config):
    torch.manual_seed(3)
    model = Net()
    start = 0
    checkpoint = session.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            saved = torch.load(os.path.join(directory, "state.pt"))
        model.load_state_dict(saved["model"])
        start = saved["epoch"] + 1

    inputs, targets = xor()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(start, config["epochs"]):
        for _ in range(60):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as directory:
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(directory, "state.pt"))
            session.report(
                {"loss": loss.item(), "epoch": epoch, "resumed_at": start},
                checkpoint=Checkpoint.from_directory(directory),
            )
        mark = os.path.join(config["marks"], "failed_once")
        if epoch == 1 and session.get_world_rank() == 0 and not os.path.exists(mark):
            open(mark, "w").close()
            raise RuntimeError("the machine room is on fire")


def main():
    ray.init(num_cpus=4)
    with tempfile.TemporaryDirectory() as marks:
        result = TorchTrainer(
            train_loop,
            train_loop_config={"epochs": 5, "marks": marks},
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(name="failure", failure_config=FailureConfig(max_failures=2)),
        ).fit()
        assert os.listdir(marks) == ["failed_once"]
    assert result.error is None
    assert result.metrics["resumed_at"] == 2 and result.metrics["epoch"] == 4, result.metrics
    assert result.metrics["loss"] < 0.05, result.metrics["loss"]

    packed = TorchCheckpoint.from_state_dict(Net().state_dict())
    assert isinstance(packed.get_model(Net()), nn.Module)
    print("resumed at epoch 2 and finished with a loss below 0.05")


if __name__ == "__main__":
    main()
