"""A first search: twelve networks begin to learn handwritten digits, and those that fall behind are stopped early.

Every trial is a process of its own that runs `train_digits` with a config drawn from the space. ASHA compares them after 1,
3 and 9 epochs and lets the best third of each round go on.

Run it with `python examples/tune_asha.py`.
"""
# ruff: noqa: E402

import carril

# Before the heavy imports: the trials' process imports torch and scikit-learn at the same time as this script.
carril.init()

import torch
from sklearn.datasets import load_digits
from torch import nn

from carril import tune
from carril.tune.schedulers import ASHAScheduler
from carril.tune.search import BasicVariantGenerator


def train_digits(config: dict) -> None:
    """One trial."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    judged = torch.arange(len(labels)) % 5 == 0
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=config["lr"])
    for epoch in range(27):
        for batch in (~judged).nonzero().squeeze(1).split(64):
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = network(images[judged]).argmax(1) == labels[judged]
        tune.report({"epoch": epoch, "accuracy": right.float().mean().item()})


def main() -> None:
    tuner = tune.Tuner(
        train_digits,
        param_space={"lr": tune.loguniform(1e-5, 1e-1), "width": tune.choice([8, 32, 128])},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=12,
            search_alg=BasicVariantGenerator(random_state=0),  # the same twelve configs in every run
            scheduler=ASHAScheduler(max_t=27, grace_period=1, reduction_factor=3),
        ),
    )
    results = tuner.fit()
    best = results.get_best_result()
    epochs = sum(result.metrics["training_iteration"] for result in results)
    print(f"accuracy {best.metrics['accuracy']:.1%} with {best.config}")
    print(f"{len(results)} trials took {epochs} epochs instead of {27 * len(results)}")


if __name__ == "__main__":
    main()
