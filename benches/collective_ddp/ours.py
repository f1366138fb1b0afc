"""What averaging the gradients adds to a step of DDP, two workers of one host, with the hook for shared memory."""
# ruff: noqa: E402

import json
import os
import sys
from pathlib import Path

import carril

carril.init()

from carril import train
from carril.train.torch import TorchConfig, TorchTrainer, prepare_model


def loop(config: dict) -> dict:
    sys.path.insert(0, config["benches"])
    from runner.reducing import ddp_steps

    return ddp_steps(prepare_model)


trainer = TorchTrainer(
    loop,
    train_loop_config={"benches": str(Path(__file__).resolve().parent.parent)},
    torch_config=TorchConfig(cpu_allreduce="shared_memory"),
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
print("BENCH " + json.dumps(trainer.fit().return_value))
