"""A trainer as what is tuned: every trial is a group of two workers that train one network together.

`param_space` has the part of the trainer's `train_loop_config` that is searched; what it does not name stays. Each trial
keeps its checkpoints, and the best one of all is loaded at the end.

Run it with `python examples/tune_trainer.py`.
"""
# ruff: noqa: E402

import carril

# Before the heavy imports: the workers' process imports torch and scikit-learn at the same time as this script.
carril.init()

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from carril import train, tune
from carril.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def images_and_labels() -> tuple[TensorDataset, TensorDataset]:
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    judged = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~judged], labels[~judged]), TensorDataset(images[judged], labels[judged])


def make_network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def accuracy(network: nn.Module, judged: TensorDataset) -> float:
    images, labels = judged.tensors
    with torch.no_grad():
        return (network(images).argmax(dim=1) == labels).float().mean().item()


def train_digits(config: dict) -> None:
    """What every worker of a trial runs."""
    learned, judged = images_and_labels()
    torch.manual_seed(0)
    network = make_network()
    model = prepare_model(network)
    loader = prepare_data_loader(DataLoader(learned, batch_size=32, shuffle=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for epoch in range(config["epochs"]):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        checkpoint = None
        if train.get_context().get_world_rank() == 0:
            checkpoint = train.Checkpoint.from_dict({"network": network.state_dict()})
        train.report({"accuracy": accuracy(network, judged)}, checkpoint=checkpoint)


def main() -> None:
    trainer = TorchTrainer(
        train_digits,
        train_loop_config={"epochs": 4},
        scaling_config=train.ScalingConfig(num_workers=2),
    )
    tuner = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"lr": tune.grid_search([0.0001, 0.01, 0.1])}},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
        run_config=tune.RunConfig(checkpoint_config=tune.CheckpointConfig(num_to_keep=1)),
    )
    results = tuner.fit()
    best = results.get_best_result()
    network = make_network()
    network.load_state_dict(best.checkpoint.to_dict()["network"])
    _, judged = images_and_labels()
    print(
        f"the best of {len(results)} has lr {best.config['train_loop_config']['lr']}: "
        f"its network reads {accuracy(network, judged):.1%} of the digits"
    )


if __name__ == "__main__":
    main()
