"""How long a training function waits: for its first batch, and between the last step of an epoch and the first batch of the next.

A step is one of a small network on a batch, so that there is something to compare with.
"""

import json
import os
import sys
import time
from pathlib import Path
from statistics import median

import torch

from carril import data, train
from carril.train.torch import TorchTrainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import BATCH, paths, tell

STORAGE = os.environ["BENCH_STORAGE"]
EPOCHS = 4


def loop(config: dict) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    waited, steps = [], []
    asked = time.perf_counter()
    shard = train.get_dataset_shard("train")
    for _ in range(config["epochs"]):
        is_first = True
        for batch in shard.iter_torch_batches(batch_size=config["batch"]):
            began = time.perf_counter()
            if is_first:
                waited.append(began - asked)
                is_first = False
            inputs = torch.stack([batch[f"x{feature}"] for feature in range(32)], dim=1)
            loss = torch.nn.functional.cross_entropy(model(inputs), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            asked = time.perf_counter()
            steps.append(asked - began)
    Path(config["storage"], "waited.json").write_text(json.dumps({"waited": waited, "steps": steps}))


TorchTrainer(
    loop,
    train_loop_config={"epochs": EPOCHS, "batch": BATCH, "storage": STORAGE},
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(storage_path=STORAGE),
    datasets={"train": data.read_parquet(paths()).random_shuffle()},
).fit()
noted = json.loads(Path(STORAGE, "waited.json").read_text())
first, *gaps = noted["waited"]
tell(first_s=first, gap_s=median(gaps), step_s=median(noted["steps"]))
