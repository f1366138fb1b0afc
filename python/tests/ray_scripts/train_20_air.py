"""Follows the kind of page that showed AIR in Ray 2.0: `session.report`, dict checkpoints, `resume_from_checkpoint`.

A linear model is trained, and trained on from the checkpoint that the first trainer returned.
"""

import ray
import torch
from ray import train
from ray.air import Checkpoint, session
from ray.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn


def make_data(seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(512, 4, generator=generator)
    weights = torch.tensor([[1.5], [-2.0], [0.5], [3.0]])
    return inputs, inputs @ weights + 0.25


def train_loop_per_worker(config):
    torch.manual_seed(0)
    inputs, targets = make_data(seed=session.get_world_rank())
    model = nn.Linear(4, 1)
    first_epoch = 0
    checkpoint = session.get_checkpoint()
    if checkpoint is not None:
        state = checkpoint.to_dict()
        model.load_state_dict(state["model"])
        first_epoch = state["epoch"] + 1
    model = train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    loss_fn = nn.MSELoss()

    for epoch in range(first_epoch, first_epoch + config["num_epochs"]):
        for _ in range(10):
            loss = loss_fn(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        inner = model.module if hasattr(model, "module") else model
        session.report(
            {"loss": loss.item(), "epoch": epoch},
            checkpoint=Checkpoint.from_dict({"epoch": epoch, "model": inner.state_dict()}),
        )


def trainer(name, resume_from_checkpoint=None):
    return TorchTrainer(
        train_loop_per_worker=train_loop_per_worker,
        train_loop_config={"lr": 0.05, "num_epochs": 4},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(
            name=name,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
        resume_from_checkpoint=resume_from_checkpoint,
    )


def main():
    ray.init(num_cpus=4, ignore_reinit_error=True)
    first = trainer("air_first").fit()
    assert first.metrics["epoch"] == 3 and first.metrics["training_iteration"] == 4, first.metrics
    assert first.checkpoint.to_dict()["epoch"] == 3
    assert len(first.best_checkpoints) == 2
    assert {"time_total_s", "trial_id", "pid", "hostname"} <= set(first.metrics), sorted(first.metrics)

    second = trainer("air_second", first.checkpoint).fit()
    assert second.metrics["epoch"] == 7, second.metrics
    assert second.metrics["loss"] < first.metrics["loss"]
    frame = second.metrics_dataframe
    assert list(frame["epoch"]) == [4, 5, 6, 7]
    print(f"loss fell from {first.metrics['loss']:.4f} to {second.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
