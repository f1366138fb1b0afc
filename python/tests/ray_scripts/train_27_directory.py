"""Follows the kind of page that showed Ray 2.7's names: `ray.train.report`, checkpoint directories, `TorchTrainer.restore`.

A run fails on purpose after three epochs; `restore` takes it to its end.
"""

import os
import pickle
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from sklearn.datasets import load_iris
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "0")


def load():
    bunch = load_iris()
    inputs = torch.tensor((bunch.data - bunch.data.mean(0)) / bunch.data.std(0), dtype=torch.float32)
    return TensorDataset(inputs, torch.tensor(bunch.target))


def train_func(config):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = pickle.loads(Path(directory, "state.pkl").read_bytes())
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
    model = prepare_model(model)
    loader = prepare_data_loader(DataLoader(load(), batch_size=16, shuffle=True))

    for epoch in range(start, config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        losses = []
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with tempfile.TemporaryDirectory() as directory:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                Path(directory, "state.pkl").write_bytes(pickle.dumps(state))
                saved = Checkpoint.from_directory(directory)
            ray.train.report({"loss": sum(losses) / len(losses), "epoch": epoch, "start": start}, checkpoint=saved)
        if epoch == 2 and start == 0 and not Path(config["gate"]).exists():
            raise RuntimeError("interrupted on purpose")


def main():
    ray.init(num_cpus=4)
    with tempfile.TemporaryDirectory() as storage:
        gate = os.path.join(storage, "gate")
        trainer = TorchTrainer(
            train_func,
            train_loop_config={"lr": 0.01, "epochs": 8, "gate": gate},
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name="iris",
                storage_path=storage,
                checkpoint_config=CheckpointConfig(num_to_keep=1),
                failure_config=FailureConfig(max_failures=0),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            print("failed as expected:", type(error).__name__)
        else:
            raise AssertionError("the run should have failed")

        path = os.path.join(storage, "iris")
        assert TorchTrainer.can_restore(path)
        Path(gate).touch()
        result = TorchTrainer.restore(path, train_loop_per_worker=train_func).fit()
        assert result.metrics["epoch"] == 7 and result.metrics["start"] == 3, result.metrics
        assert result.metrics["loss"] < 0.5, result.metrics["loss"]
        assert Path(result.checkpoint.path, "state.pkl").exists()
        print("restored at epoch", result.metrics["start"])


if __name__ == "__main__":
    main()
