"""Follows the kind of page of Ray 2.0 on tuning a trainer: `Tuner(TorchTrainer(…), param_space={"train_loop_config": …})`.

Each trial trains with two workers; the number of workers is searched as well.
"""

import json

import ray
import torch
from ray import train, tune
from ray.air import session
from ray.air.checkpoint import Checkpoint
from ray.air.config import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.tune_config import TuneConfig
from ray.tune.tuner import Tuner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_datasets():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(240, 3, generator=generator)
    targets = inputs.sum(1, keepdim=True) - 1
    return TensorDataset(inputs[:200], targets[:200]), TensorDataset(inputs[200:], targets[200:])


def train_func(config):
    torch.manual_seed(1)
    train_dataset, validation = get_datasets()
    loader = train.torch.prepare_data_loader(DataLoader(train_dataset, batch_size=config["batch_size"]))
    model = train.torch.prepare_model(nn.Linear(3, 1))
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        for inputs, targets in loader:
            loss = loss_fn(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            inputs, targets = validation[:]
            val_loss = loss_fn(model(inputs), targets).item()
        state = {name: value.clone() for name, value in model.module.state_dict().items()}
        session.report(
            {"loss": val_loss, "epoch": epoch, "world_size": session.get_world_size()},
            checkpoint=Checkpoint.from_dict({"model": state, "epoch": epoch}),
        )


def tune_linear():
    trainer = TorchTrainer(
        train_loop_per_worker=train_func,
        train_loop_config={"lr": 0.5, "batch_size": 10, "epochs": 3},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    )
    tuner = Tuner(
        trainer,
        param_space={
            "train_loop_config": {"lr": tune.grid_search([0.1, 0.01, 0.0001]), "batch_size": 20, "epochs": 3},
        },
        tune_config=TuneConfig(num_samples=1, metric="loss", mode="min", max_concurrent_trials=1),
        run_config=RunConfig(name="tune_linear", checkpoint_config=CheckpointConfig(num_to_keep=1), verbose=1),
    )
    return tuner.fit()


def main():
    ray.init(num_cpus=4)
    result_grid = tune_linear()
    assert not result_grid.errors, result_grid.errors
    best = result_grid.get_best_result("loss", mode="min")
    print("Best loss is", best.metrics["loss"], "with", best.config["train_loop_config"])
    assert best.config["train_loop_config"] == {"lr": 0.1, "batch_size": 20, "epochs": 3}, best.config
    assert best.metrics["world_size"] == 2 and best.metrics["epoch"] == 2, best.metrics
    state = best.checkpoint.to_dict()
    assert state["epoch"] == 2
    bias = state["model"]["bias"].item()
    assert abs(bias + 1) < 0.1, bias
    rates = {}
    for result in result_grid:
        rates[str(result.config["train_loop_config"]["lr"])] = round(result.metrics["loss"], 3)
    print(json.dumps({"losses": rates, "bias": round(bias, 2)}))


if __name__ == "__main__":
    main()
