"""Follows the page of today's Ray on tuning with Ray Train: each trial of a `Tuner` builds a `TorchTrainer` of its own.

`TuneReportCallback` hands the metrics of the workers to the trial; the best trial's checkpoint is loaded from its path.
"""

import json
import os
import tempfile

import ray
import ray.train
import ray.tune
import torch
from ray.train.torch import TorchTrainer, prepare_model
from ray.tune.integration.ray_train import TuneReportCallback
from torch import nn

STORAGE = os.path.abspath("storage")


def data():
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(128, 2, generator=generator)
    return inputs, (inputs[:, :1] * inputs[:, 1:] > 0).float()


def train_fn_per_worker(config):
    torch.manual_seed(config["seed"])
    rank, size = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    inputs, labels = (part[rank::size] for part in data())
    model = prepare_model(nn.Sequential(nn.Linear(2, config["hidden"]), nn.Tanh(), nn.Linear(config["hidden"], 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(3):
        for _ in range(20):
            loss = nn.functional.binary_cross_entropy_with_logits(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct = ((model(inputs) > 0).float() == labels).float().sum()
        torch.distributed.all_reduce(correct)
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if rank == 0:
                torch.save(model.module.state_dict(), os.path.join(directory, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(directory)
            metrics = {"accuracy": correct.item() / 128, "epoch": epoch, "hidden": config["hidden"]}
            ray.train.report(metrics, checkpoint=checkpoint)


def train_driver_fn(config):
    trainer = TorchTrainer(
        train_fn_per_worker,
        train_loop_config=config["train_loop_config"],
        scaling_config=ray.train.ScalingConfig(num_workers=config["num_workers"]),
        run_config=ray.train.RunConfig(
            name=f"train-hidden={config['train_loop_config']['hidden']}",
            storage_path=STORAGE,
            callbacks=[TuneReportCallback()],
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
        ),
    )
    trainer.fit()


def main():
    ray.init(num_cpus=4)
    tuner = ray.tune.Tuner(
        train_driver_fn,
        param_space={
            "num_workers": 2,
            "train_loop_config": {"hidden": ray.tune.grid_search([1, 16]), "seed": 0},
        },
        tune_config=ray.tune.TuneConfig(max_concurrent_trials=1, metric="accuracy", mode="max"),
        run_config=ray.tune.RunConfig(name="tune_train", storage_path=STORAGE),
    )
    results = tuner.fit()
    assert not results.errors, results.errors
    best = results.get_best_result()
    assert best.config["train_loop_config"]["hidden"] == 16, best.config
    assert best.metrics["epoch"] == 2 and best.metrics["training_iteration"] == 3, best.metrics
    path = best.metrics["checkpoint_path"]
    assert os.path.join(STORAGE, "train-hidden=16") in path, path
    state = torch.load(os.path.join(path, "model.pt"))
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    model.load_state_dict(state)
    inputs, labels = data()
    accuracy = ((model(inputs) > 0).float() == labels).float().mean().item()
    assert accuracy == best.metrics["accuracy"] > 0.9, (accuracy, best.metrics)
    others = {str(result.config["train_loop_config"]["hidden"]): result.metrics["hidden"] for result in results}
    print(json.dumps({"accuracy": round(accuracy, 2), "hidden": others, "trials": len(results)}))


if __name__ == "__main__":
    main()
