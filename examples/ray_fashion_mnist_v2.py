"""A training script in today's Ray style, with the names of `ray.train`. It runs unchanged, with Ray and with carril.

The pictures have Fashion-MNIST's shape, one channel of 28 by 28 and ten classes, and are scikit-learn's digits
enlarged, so that there is nothing to download.

Run it with `carril as-ray -- python examples/ray_fashion_mnist_v2.py`.
"""

import argparse
import os
import tempfile

import ray
import ray.train
import torch
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Ten classes of pictures, every sixth one kept apart for the test."""

    def __init__(self, train: bool):
        digits = load_digits()
        in_test = torch.arange(len(digits.target)) % 6 == 0
        chosen = ~in_test if train else in_test
        small = torch.tensor(digits.images, dtype=torch.float32)[chosen].unsqueeze(1) / 16.0
        self.images = nn.functional.interpolate(small, size=(28, 28), mode="bilinear")
        self.labels = torch.tensor(digits.target)[chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index], self.labels[index]


def loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    training = DataLoader(Pictures(train=True), batch_size=batch_size, shuffle=True)
    test = DataLoader(Pictures(train=False), batch_size=batch_size)
    return prepare_data_loader(training), prepare_data_loader(test)


def train_func_per_worker(config: dict) -> None:
    torch.manual_seed(0)  # the same first weights in every worker, and in every run
    context = ray.train.get_context()
    training_loader, test_loader = loaders(config["batch_size_per_worker"])
    model = prepare_model(
        nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    )
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    for epoch in range(config["epochs"]):
        if context.get_world_size() > 1:
            training_loader.sampler.set_epoch(epoch)
        model.train()
        for pictures, labels in training_loader:
            loss = loss_function(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        test_loss, correct, total = 0.0, 0, 0
        with torch.no_grad():
            for pictures, labels in test_loader:
                guess = model(pictures)
                test_loss += loss_function(guess, labels).item()
                correct += (guess.argmax(1) == labels).sum().item()
                total += len(labels)
        metrics = {"loss": test_loss / len(test_loader), "accuracy": correct / total}

        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if context.get_world_rank() == 0:
                torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
                checkpoint = Checkpoint.from_directory(directory)
            ray.train.report(metrics, checkpoint=checkpoint)


def train_pictures(num_workers: int, use_gpu: bool, epochs: int, batch_size: int = 64) -> None:
    trainer = TorchTrainer(
        train_loop_per_worker=train_func_per_worker,
        train_loop_config={"lr": 0.05, "epochs": epochs, "batch_size_per_worker": batch_size // num_workers},
        scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
    )
    result = trainer.fit()
    accuracy, loss = result.metrics["accuracy"], result.metrics["loss"]
    print(f"accuracy {accuracy:.1%}, loss {loss:.4f}, kept in {result.checkpoint.path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", type=str, default=None, help="the cluster's address; none starts one here")
    parser.add_argument("--num-workers", type=int, default=2, help="how many workers train")
    parser.add_argument("--use-gpu", action="store_true", default=False, help="a GPU for each worker")
    parser.add_argument("--smoke-test", action="store_true", default=False, help="only a short run")
    args = parser.parse_args()

    if args.smoke_test:
        ray.init(num_cpus=4)
        train_pictures(num_workers=2, use_gpu=False, epochs=1)
    else:
        ray.init(address=args.address)
        train_pictures(num_workers=args.num_workers, use_gpu=args.use_gpu, epochs=6)
