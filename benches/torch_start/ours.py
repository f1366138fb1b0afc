"""The same with torch: a process group of two workers and one step of DistributedDataParallel."""
# ruff: noqa: E402

import os

import carril

carril.init()

import torch

from carril import train
from carril.train.torch import TorchTrainer, prepare_model


def loop() -> None:
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    for step in range(2):
        train.report({"step": step, "loss": loss.item()})


trainer = TorchTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
result = trainer.fit()
assert result.metrics["step"] == 1
