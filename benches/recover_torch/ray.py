"""kill -9 of a worker until both ranks have made a step of DistributedDataParallel again, several times in one run."""

import json
import os
import signal
import time

import ray
import torch
from ray import train
from ray.train.torch import TorchTrainer, prepare_model

KILLS = int(os.environ.get("BENCH_KILLS", "2"))
times = os.path.join(os.environ["BENCH_STORAGE"], "times")


def read(name: object) -> list[float]:
    if not os.path.exists(f"{times}.{name}"):
        return []
    with open(f"{times}.{name}") as file:
        return [float(line) for line in file]


def write(name: object) -> None:
    with open(f"{times}.{name}", "a") as file:
        file.write(f"{time.time()}\n")


def loop() -> None:
    rank = train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    write(rank)
    begun = len(read(rank))
    if begun <= KILLS and rank == 1:
        while len(read(0)) < begun:
            time.sleep(0.001)
        write("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    if begun <= KILLS:
        time.sleep(60)


ray.init(num_cpus=2, include_dashboard=False)
TorchTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(
        name="recover",
        storage_path=os.environ["BENCH_STORAGE"],
        failure_config=train.FailureConfig(max_failures=KILLS + 1),
    ),
).fit()
again = [max(pair) for pair in zip(read(0)[1:], read(1)[1:], strict=True)]
print("BENCH " + json.dumps({"seconds": [b - a for a, b in zip(read("killed"), again, strict=True)]}))
