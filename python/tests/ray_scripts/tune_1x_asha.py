"""Follows the kind of tutorial that PyTorch had on Ray Tune 1.x: `tune.report(loss=…)`, `tune.checkpoint_dir`, ASHA, `partial`.

A small network is trained for each learning rate; the best trial's checkpoint is loaded and tested.
"""

import json
import os
from functools import partial

import numpy as np
import torch
from ray import tune
from ray.tune import CLIReporter
from ray.tune.schedulers import ASHAScheduler
from torch import nn


class Net(nn.Module):
    def __init__(self, l1=16):
        super().__init__()
        self.fc1 = nn.Linear(8, l1)
        self.fc2 = nn.Linear(l1, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(data_dir):
    packed = np.load(os.path.join(data_dir, "blobs.npz"))
    inputs, labels = torch.tensor(packed["x"]), torch.tensor(packed["y"])
    return (inputs[:400], labels[:400]), (inputs[400:], labels[400:])


def train_blobs(config, checkpoint_dir=None, data_dir=None):
    torch.manual_seed(0)
    net = Net(config["l1"])
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)
    if checkpoint_dir:
        model_state, optimizer_state = torch.load(os.path.join(checkpoint_dir, "checkpoint"))
        net.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)

    (inputs, labels), (val_inputs, val_labels) = load_data(data_dir)
    for epoch in range(8):
        for start in range(0, len(inputs), 50):
            optimizer.zero_grad()
            loss = criterion(net(inputs[start : start + 50]), labels[start : start + 50])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            outputs = net(val_inputs)
            val_loss = criterion(outputs, val_labels).item()
            accuracy = (outputs.argmax(1) == val_labels).float().mean().item()
        with tune.checkpoint_dir(epoch) as directory:
            path = os.path.join(directory, "checkpoint")
            torch.save((net.state_dict(), optimizer.state_dict()), path)
        tune.report(loss=val_loss, accuracy=accuracy)


def make_data(data_dir):
    random = np.random.default_rng(7)
    centers = random.normal(scale=3, size=(3, 8))
    labels = random.integers(0, 3, size=500)
    inputs = centers[labels] + random.normal(size=(500, 8))
    os.makedirs(data_dir, exist_ok=True)
    np.savez(os.path.join(data_dir, "blobs.npz"), x=inputs.astype(np.float32), y=labels)


def main(num_samples=1, max_num_epochs=8, gpus_per_trial=0):
    data_dir = os.path.abspath("./data")
    make_data(data_dir)
    config = {"l1": tune.choice([16]), "lr": tune.grid_search([1e-2, 1e-3, 1e-5, 1e-6])}
    scheduler = ASHAScheduler(metric="loss", mode="min", max_t=max_num_epochs, grace_period=2, reduction_factor=2)
    reporter = CLIReporter(metric_columns=["loss", "accuracy", "training_iteration"])
    result = tune.run(
        partial(train_blobs, data_dir=data_dir),
        name="tutorial",
        resources_per_trial={"cpu": 1, "gpu": gpus_per_trial},
        config=config,
        num_samples=num_samples,
        scheduler=scheduler,
        progress_reporter=reporter,
        max_concurrent_trials=1,
    )

    best_trial = result.get_best_trial("loss", "min", "last")
    print(f"Best trial config: {best_trial.config}")
    print("Best trial final validation loss: {}".format(best_trial.last_result["loss"]))
    best_trained_model = Net(best_trial.config["l1"])
    best_checkpoint = result.get_best_checkpoint(best_trial, "loss", "min")
    with best_checkpoint.as_directory() as directory:
        model_state, _ = torch.load(os.path.join(directory, "checkpoint"))
    best_trained_model.load_state_dict(model_state)
    _, (inputs, labels) = load_data(data_dir)
    test_acc = (best_trained_model(inputs).argmax(1) == labels).float().mean().item()

    iterations = {trial.config["lr"]: trial.last_result["training_iteration"] for trial in result.trials}
    assert best_trial.config["lr"] == 1e-2 and test_acc > 0.9, (best_trial.config, test_acc)
    assert iterations == {1e-2: 8, 1e-3: 2, 1e-5: 2, 1e-6: 2}, iterations
    print(json.dumps({"lr": best_trial.config["lr"], "accuracy": round(test_acc, 2), "trials": len(result.trials)}))


if __name__ == "__main__":
    main()
