"""From the start of the process to a returned `fit()`: two workers, two reports each, no torch."""

import os

from carril import train


def loop() -> None:
    for step in range(2):
        train.report({"step": step})


trainer = train.DataParallelTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
result = trainer.fit()
assert result.metrics["step"] == 1
