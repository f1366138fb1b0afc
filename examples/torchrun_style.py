"""Runs a script that was written for torchrun, unchanged, on two workers.

Each worker has torchrun's environment (`RANK`, `WORLD_SIZE`, `MASTER_ADDR` and the others), so the script's own
`init_process_group()` finds its group. `DataParallelTrainer` is the trainer for this: `TorchTrainer` makes the group
itself.

Run it with `python examples/torchrun_style.py`.
"""

import runpy
from pathlib import Path

from carril import train

SCRIPT = Path(__file__).resolve().parent / "torchrun_script.py"


def run_script(config: dict) -> None:
    runpy.run_path(config["script"], run_name="__main__")
    train.report({"finished": True})


if __name__ == "__main__":
    trainer = train.DataParallelTrainer(
        run_script,
        train_loop_config={"script": str(SCRIPT)},
        scaling_config=train.ScalingConfig(num_workers=2),
    )
    result = trainer.fit()
    print(f"finished {SCRIPT.name}: {result.metrics['finished']}, its output is in {result.path}")
