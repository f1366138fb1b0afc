"""Follows the page of today's Ray on fault tolerance of Train: a worker that fails, and a job that is started again by its name.

The first `fit()` survives one failure and dies of the second; a trainer of the same name and storage resumes from the last checkpoint.
"""

import json
import os
import tempfile

import ray
import ray.train
import torch
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STORAGE = os.path.abspath("storage")


def loader():
    generator = torch.Generator().manual_seed(8)
    inputs = torch.randn(96, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)


def train_func(config):
    torch.manual_seed(0)
    model, start = nn.Linear(4, 1), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "state.pt"))
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    model = prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = prepare_data_loader(loader())
    context = ray.train.get_context()
    for epoch in range(start, config["epochs"]):
        if epoch in config["fails_at"] and context.get_world_rank() == 1:
            mark = os.path.join(config["marks"], f"failed_{epoch}")
            if not os.path.exists(mark):
                open(mark, "w").close()
                raise RuntimeError(f"lost at epoch {epoch}")
        for inputs, targets in batches:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if context.get_world_rank() == 0:
                torch.save({"model": model.module.state_dict(), "epoch": epoch}, os.path.join(directory, "state.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(directory)
            metrics = {"loss": loss.item(), "epoch": epoch, "start": start, "size": context.get_world_size()}
            ray.train.report(metrics, checkpoint=checkpoint, checkpoint_dir_name=f"epoch_{epoch}")
    return start


def trainer(marks):
    return TorchTrainer(
        train_func,
        train_loop_config={"epochs": 6, "fails_at": [2, 4], "marks": marks},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="resume",
            storage_path=STORAGE,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=3),
        ),
    )


def main():
    ray.init(num_cpus=4)
    marks = os.path.abspath("marks")
    os.makedirs(marks, exist_ok=True)
    try:
        trainer(marks).fit()
    except WorkerGroupError as error:
        assert "lost at epoch 4" in str(error.worker_failures[1]), error.worker_failures
    else:
        raise AssertionError("the second failure should have ended the run")
    assert sorted(os.listdir(marks)) == ["failed_2", "failed_4"]

    result = trainer(marks).fit()
    assert result.metrics["epoch"] == 5 and result.metrics["start"] == 4, result.metrics
    assert result.return_value == 4
    kept = [os.path.basename(checkpoint.path) for checkpoint, _ in result.best_checkpoints]
    assert kept == ["epoch_3", "epoch_4", "epoch_5"], kept
    again = ray.train.Result.from_path(os.path.join(STORAGE, "resume"))
    assert again.metrics == result.metrics
    starts = [metrics["start"] for _, metrics in result.best_checkpoints]
    print(json.dumps({"kept": kept, "starts": starts, "loss": round(result.metrics["loss"], 4)}))


if __name__ == "__main__":
    main()
