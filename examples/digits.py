"""Trains a small network to read handwritten digits, on two workers of this machine.

The images are scikit-learn's `digits`: 1,797 of 8 by 8 pixels, nothing to download. Each worker runs `train_digits`
in a process of its own on its half of the images; the gradients are averaged by PyTorch's DistributedDataParallel.

Run it with `python examples/digits.py`.
"""
# ruff: noqa: E402

import carril

# Before the heavy imports: the workers' process imports torch and scikit-learn at the same time as this script.
carril.init()

import argparse
import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from carril import train
from carril.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def images_and_labels() -> tuple[TensorDataset, TensorDataset]:
    """The images to learn from and, apart from them, every fifth one to be judged by."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    judged = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~judged], labels[~judged]), TensorDataset(images[judged], labels[judged])


def train_digits(config: dict) -> None:
    """What every worker runs."""
    learned, judged = images_and_labels()
    torch.manual_seed(0)  # the same first weights in every worker, and in every run
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = prepare_model(network)
    loader = prepare_data_loader(DataLoader(learned, batch_size=config["batch_size"], shuffle=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    loss_function = nn.CrossEntropyLoss()

    for epoch in range(config["epochs"]):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        losses = []
        for images, labels in loader:
            loss = loss_function(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        metrics = {"epoch": epoch, "loss": sum(losses) / len(losses), "accuracy": accuracy(network, judged)}
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                torch.save(network.state_dict(), os.path.join(directory, "network.pt"))
                checkpoint = train.Checkpoint.from_directory(directory)
            train.report(metrics, checkpoint=checkpoint)


def accuracy(network: nn.Module, judged: TensorDataset) -> float:
    images, labels = judged.tensors
    with torch.no_grad():
        return (network(images).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="trains a small network on scikit-learn's digits")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()

    trainer = TorchTrainer(
        train_digits,
        train_loop_config={"epochs": arguments.epochs, "batch_size": 32, "lr": 3e-3},
        scaling_config=train.ScalingConfig(num_workers=arguments.num_workers),
    )
    result = trainer.fit()
    with result.checkpoint.as_directory() as directory:
        weights = torch.load(os.path.join(directory, "network.pt"))
    print(
        f"accuracy {result.metrics['accuracy']:.1%} with {len(weights)} tensors of weights in {result.checkpoint.path}"
    )


if __name__ == "__main__":
    main()
