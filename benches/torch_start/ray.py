"""The same with torch: a process group of two workers and one step of DistributedDataParallel."""

import os

import ray
import torch
from ray import train
from ray.train.torch import TorchTrainer, prepare_model


def loop() -> None:
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    for step in range(2):
        train.report({"step": step, "loss": loss.item()})


ray.init(num_cpus=2, include_dashboard=False)
trainer = TorchTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
trainer.fit()
