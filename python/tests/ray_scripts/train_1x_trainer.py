"""Follows the kind of page that showed Ray Train 1.x: `Trainer(backend="torch")`, `trainer.run`, `train.report(loss=…)`.

A regression on two workers, with checkpoints that `train.save_checkpoint` makes, and a second run that resumes from the last one.
"""

import json

import ray.train as train
import torch
from ray.train import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_dataset():
    generator = torch.Generator().manual_seed(5)
    inputs = torch.rand(256, 1, generator=generator)
    return TensorDataset(inputs, 2 * inputs + 1)


def train_epoch(dataloader, model, loss_fn, optimizer):
    for inputs, targets in dataloader:
        loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate_epoch(dataloader, model, loss_fn):
    model.eval()
    with torch.no_grad():
        losses = [loss_fn(model(inputs), targets).item() for inputs, targets in dataloader]
    model.train()
    return sum(losses) / len(losses)


def train_func(config):
    torch.manual_seed(0)
    loader = DataLoader(make_dataset(), batch_size=config.get("batch_size", 32))
    loader = train.torch.prepare_data_loader(loader)
    model = nn.Linear(1, config.get("hidden_size", 1))
    start_epoch = 0
    checkpoint = train.load_checkpoint()
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
        start_epoch = checkpoint["epoch"] + 1
    model = train.torch.prepare_model(model)
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.get("lr", 1e-2))

    results = []
    for epoch in range(start_epoch, start_epoch + config["epochs"]):
        train_epoch(loader, model, loss_fn, optimizer)
        loss = validate_epoch(loader, model, loss_fn)
        train.save_checkpoint(epoch=epoch, loss=loss, model=model.module.state_dict())
        train.report(loss=loss, epoch=epoch)
        results.append(loss)
    return {"rank": train.world_rank(), "size": train.world_size(), "local": train.local_rank(), "losses": results}


def train_linear(num_workers=2, epochs=3):
    trainer = Trainer(backend="torch", num_workers=num_workers)
    config = {"lr": 0.1, "hidden_size": 1, "batch_size": 16, "epochs": epochs}
    trainer.start()
    first = trainer.run(train_func, config=config)
    latest = trainer.latest_checkpoint
    assert latest["epoch"] == epochs - 1, latest
    assert trainer.best_checkpoint_path is not None and trainer.best_checkpoint_path.exists()
    second = trainer.run(train_func, config=config, checkpoint=latest)
    trainer.shutdown()
    return first, second


def main():
    first, second = train_linear()
    assert [(one["rank"], one["local"], one["size"]) for one in first] == [(0, 0, 2), (1, 1, 2)], first
    losses = first[0]["losses"] + second[0]["losses"]
    assert len(losses) == 6 and losses[-1] < losses[0] / 3, losses
    assert losses == sorted(losses, reverse=True), losses
    print(json.dumps({"workers": len(first), "losses": [round(loss, 3) for loss in losses]}))


if __name__ == "__main__":
    main()
