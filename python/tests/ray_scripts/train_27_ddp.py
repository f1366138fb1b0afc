"""Follows the quick start of Ray 2.7 for PyTorch: a loop over `prepare_data_loader`, `prepare_model`, a checkpoint an epoch.

Handwritten digits on two workers; the best two checkpoints are kept by accuracy, and the best one is tested.
"""

import json
import os
import tempfile

import ray
import torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_datasets():
    digits = load_digits()
    inputs = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    return TensorDataset(inputs[:1400], labels[:1400]), TensorDataset(inputs[1400:], labels[1400:])


def build_model():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train_func_per_worker(config):
    torch.manual_seed(0)
    workers = train.get_context().get_world_size()
    training_data, test_data = get_datasets()
    train_loader = DataLoader(training_data, batch_size=config["batch_size"] // workers, shuffle=True)
    test_loader = DataLoader(test_data, batch_size=50)
    train_loader = train.torch.prepare_data_loader(train_loader)
    test_loader = train.torch.prepare_data_loader(test_loader)
    model = train.torch.prepare_model(build_model())
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    for epoch in range(config["epochs"]):
        if workers > 1:
            train_loader.sampler.set_epoch(epoch)
        model.train()
        for inputs, labels in train_loader:
            loss = loss_fn(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        counts = torch.zeros(2)
        with torch.no_grad():
            for inputs, labels in test_loader:
                counts += torch.tensor([(model(inputs).argmax(1) == labels).sum(), len(labels)])
        torch.distributed.all_reduce(counts)
        metrics = {"accuracy": (counts[0] / counts[1]).item(), "tested": int(counts[1]), "epoch": epoch}
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(directory, "model.pt"))
                checkpoint = Checkpoint.from_directory(directory)
            train.report(metrics, checkpoint=checkpoint)


def train_digits(num_workers=2, use_gpu=False):
    trainer = TorchTrainer(
        train_loop_per_worker=train_func_per_worker,
        train_loop_config={"lr": 0.1, "epochs": 4, "batch_size": 64},
        scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
        run_config=RunConfig(
            name="digits",
            storage_path=os.path.abspath("storage"),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy"),
        ),
    )
    return trainer.fit()


def main():
    ray.init(num_cpus=4)
    result = train_digits()
    assert result.metrics["epoch"] == 3 and result.metrics["tested"] == 398, result.metrics
    accuracies = [metrics["accuracy"] for _, metrics in result.best_checkpoints]
    best = result.get_best_checkpoint("accuracy", "max")
    model = build_model()
    with best.as_directory() as directory:
        model.load_state_dict(torch.load(os.path.join(directory, "model.pt")))
    inputs, labels = get_datasets()[1][:]
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    assert accuracy > 0.8 and abs(accuracy - max(accuracies)) < 0.02, (accuracy, accuracies)
    assert result.path.startswith(os.path.abspath("storage/digits")), result.path
    assert len(result.metrics_dataframe) == 4
    print(json.dumps({"tested": result.metrics["tested"], "accuracy": round(accuracy, 2)}))


if __name__ == "__main__":
    main()
