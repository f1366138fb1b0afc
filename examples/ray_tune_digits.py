"""A search in the style of Ray's well-known CIFAR-10 example, with the names of `ray.air`. It runs unchanged.

Each trial trains a small network with other widths, learning rate and batch size; ASHA stops those that
fall behind. The pictures are scikit-learn's digits, so that there is nothing to download. Every epoch overwrites the same
directory with its checkpoint, which each report copies.

Run it with `carril as-ray -- python examples/ray_tune_digits.py`.
"""

import os

import numpy as np
import torch
from ray import air, tune
from ray.air import Checkpoint, session
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import BasicVariantGenerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The pictures to learn from, and every fifth one for the test of the best network."""
    digits = load_digits()
    pictures = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    in_test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(pictures[~in_test], labels[~in_test]), TensorDataset(pictures[in_test], labels[in_test])


class Net(nn.Module):
    def __init__(self, l1: int = 64, l2: int = 32) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8 * 8, l1)
        self.fc2 = nn.Linear(l1, l2)
        self.fc3 = nn.Linear(l2, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.relu(self.fc1(torch.flatten(pictures, 1)))
        return self.fc3(nn.functional.relu(self.fc2(hidden)))


def train_digits(config: dict) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is not faster with two
    net = Net(config["l1"], config["l2"])
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    net.to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)

    # A trial that was interrupted goes on from what it reported last.
    first_epoch = 0
    loaded_checkpoint = session.get_checkpoint()
    if loaded_checkpoint:
        with loaded_checkpoint.as_directory() as loaded_checkpoint_dir:
            state = torch.load(os.path.join(loaded_checkpoint_dir, "checkpoint.pt"))
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"] + 1

    known, _ = load_data()
    size = int(len(known) * 0.8)
    learned, judged = random_split(known, [size, len(known) - size])
    loader = DataLoader(learned, batch_size=int(config["batch_size"]), shuffle=True)
    judged_loader = DataLoader(judged, batch_size=256)

    for epoch in range(first_epoch, 8):
        net.train()
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(pictures.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()

        net.eval()
        losses, right = [], 0
        with torch.no_grad():
            for pictures, labels in judged_loader:
                outputs = net(pictures.to(device))
                losses.append(criterion(outputs, labels.to(device)).item())
                right += (outputs.argmax(1).cpu() == labels).sum().item()

        # The same directory in every epoch, in the trial's own working directory.
        os.makedirs("my_model", exist_ok=True)
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, "my_model/checkpoint.pt")
        checkpoint = Checkpoint.from_directory("my_model")
        session.report({"loss": np.mean(losses), "accuracy": right / len(judged)}, checkpoint=checkpoint)
    print("finished training")


def test_best_model(best_result: air.Result) -> float:
    net = Net(best_result.config["l1"], best_result.config["l2"])
    directory = best_result.checkpoint.to_directory()
    net.load_state_dict(torch.load(os.path.join(directory, "checkpoint.pt"))["net"])
    _, test_set = load_data()
    pictures, labels = test_set.tensors
    with torch.no_grad():
        return (net(pictures).argmax(1) == labels).float().mean().item()


def main(num_samples: int = 6, max_num_epochs: int = 8, gpus_per_trial: float = 0) -> None:
    np.random.seed(0)  # for the two widths; the searcher has a seed of its own
    config = {
        "l1": tune.sample_from(lambda _: 2 ** np.random.randint(2, 9)),
        "l2": tune.sample_from(lambda _: 2 ** np.random.randint(2, 9)),
        "lr": tune.loguniform(1e-2, 3e-1),
        "batch_size": tune.choice([32, 64, 128]),
    }
    scheduler = ASHAScheduler(max_t=max_num_epochs, grace_period=1, reduction_factor=2)
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(train_digits), resources={"cpu": 2, "gpu": gpus_per_trial}),
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            scheduler=scheduler,
            search_alg=BasicVariantGenerator(random_state=0),
            num_samples=num_samples,
        ),
        param_space=config,
    )
    results = tuner.fit()

    best_result = results.get_best_result("loss", "min")
    print(f"best trial config: {best_result.config}")
    print(f"best trial final validation loss: {best_result.metrics['loss']:.4f}")
    print(f"best trial final validation accuracy: {best_result.metrics['accuracy']:.1%}")
    print(f"best trial test set accuracy: {test_best_model(best_result):.1%} of {len(results)} trials")


if __name__ == "__main__":
    main()
