"""All-reduce of 64 MB of float32 between two workers of one host, through shared memory."""
# ruff: noqa: E402

import json
import os
import sys
from pathlib import Path

import carril

carril.init()

from carril import train
from carril.train import collective


def loop(config: dict) -> dict:
    sys.path.insert(0, config["benches"])
    from runner.reducing import all_reduces

    return all_reduces(lambda values: collective.all_reduce(values, "max", out=values), 16_777_216)


trainer = train.DataParallelTrainer(
    loop,
    train_loop_config={"benches": str(Path(__file__).resolve().parent.parent)},
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
print("BENCH " + json.dumps(trainer.fit().return_value))
