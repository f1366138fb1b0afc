"""From the start of the process to a returned `fit()`: two workers, two reports each, no torch."""

import os

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def loop() -> None:
    for step in range(2):
        train.report({"step": step})


ray.init(num_cpus=2, include_dashboard=False)
trainer = DataParallelTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
trainer.fit()
