"""A training script in the style of the older Ray documentation, with the names of `ray.air`. It runs unchanged.

The data sets are globals of the script and travel to the workers with the function. They have Fashion-MNIST's shape,
one channel of 28 by 28 and ten classes, and are scikit-learn's digits enlarged, so that there is nothing to
download.

Run it with `carril as-ray -- python examples/ray_fashion_mnist.py`.
"""

import argparse

import ray
import torch
from ray import train
from ray.air import session
from ray.air.config import ScalingConfig
from ray.train.torch import TorchTrainer
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


training_data = Pictures(train=True)
test_data = Pictures(train=False)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(28 * 28, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layers(pictures)


def train_epoch(
    loader: DataLoader, model: nn.Module, loss_function: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    size = len(loader.dataset) // session.get_world_size()
    model.train()
    for batch, (pictures, labels) in enumerate(loader):
        loss = loss_function(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 10 == 0:
            print(f"loss: {loss.item():>7f}  [{batch * len(pictures):>5d}/{size:>5d}]")


def test_epoch(loader: DataLoader, model: nn.Module, loss_function: nn.Module) -> float:
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for pictures, labels in loader:
            guess = model(pictures)
            loss += loss_function(guess, labels).item()
            correct += (guess.argmax(1) == labels).sum().item()
    loss /= len(loader)
    print(f"test: {correct / len(loader.dataset):.1%} right, mean loss {loss:.4f}")
    return loss


def train_func(config: dict) -> None:
    batch_size = config["batch_size"] // session.get_world_size()
    training_loader = train.torch.prepare_data_loader(DataLoader(training_data, batch_size=batch_size, shuffle=True))
    test_loader = DataLoader(test_data, batch_size=batch_size)
    model = train.torch.prepare_model(Network())
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    for _ in range(config["epochs"]):
        train_epoch(training_loader, model, loss_function, optimizer)
        loss = test_epoch(test_loader, model, loss_function)
        session.report(dict(loss=loss))  # noqa: C408


def train_pictures(num_workers: int, use_gpu: bool, epochs: int) -> None:
    trainer = TorchTrainer(
        train_loop_per_worker=train_func,
        train_loop_config={"lr": 0.1, "batch_size": 64, "epochs": epochs},
        scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
    )
    result = trainer.fit()
    print(f"last result: loss {result.metrics['loss']:.4f} in iteration {result.metrics['training_iteration']}")


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
        train_pictures(num_workers=args.num_workers, use_gpu=args.use_gpu, epochs=4)
