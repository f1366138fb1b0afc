"""Follows the kind of page that shows today's Ray Train: callbacks, sharded checkpoints, the same name resumes.

Every rank writes its own file; the best checkpoints are kept; a second `fit` of the same name loads the newest.
"""

import json
import os
import tempfile
from pathlib import Path

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback


class Printed(UserCallback):
    def __init__(self, path):
        self.path = path

    def after_report(self, run_context, metrics, checkpoint):
        row = {
            "run": run_context.run_config.name,
            "losses": [m["loss"] for m in metrics],
            "saved": checkpoint is not None,
        }
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")


def train_fn(config):
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    weight, start = torch.zeros(1), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, f"model-rank={rank}.pt"))
        weight, start = state["weight"], state["step"] + 1
    for step in range(start, config["steps"]):
        gradient = weight - 3.0
        torch.distributed.all_reduce(gradient)
        weight = weight - 0.3 * gradient / size
        loss = float((weight - 3.0) ** 2)
        with tempfile.TemporaryDirectory() as directory:
            torch.save({"weight": weight, "step": step}, os.path.join(directory, f"model-rank={rank}.pt"))
            ray.train.report({"loss": loss, "step": step}, checkpoint=Checkpoint.from_directory(directory))
    reported = ray.train.get_all_reported_checkpoints()
    assert len(reported) == 2 and set(reported[-1].metrics) == {"loss", "step"}, reported
    return {"rank": rank, "start": start}


def run(storage, steps, log):
    return ray.train.torch.TorchTrainer(
        train_fn,
        train_loop_config={"steps": steps},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="sharded",
            storage_path=storage,
            callbacks=[Printed(log)],
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
    ).fit()


def main():
    with tempfile.TemporaryDirectory() as storage:
        log = os.path.join(storage, "rows.jsonl")
        first = run(storage, 4, log)
        assert set(first.metrics) == {"loss", "step"}, first.metrics
        names = sorted(path.name for path in Path(first.checkpoint.path).glob("*.pt"))
        assert names == ["model-rank=0.pt", "model-rank=1.pt"], names
        steps = [metrics["step"] for _, metrics in first.best_checkpoints]
        assert sorted(steps) == [2, 3], steps
        assert set(first.best_checkpoints[0][1]) == {"loss", "step"}

        second = run(storage, 8, log)
        assert second.metrics["step"] == 7 and second.metrics["loss"] < first.metrics["loss"]
        rows = [json.loads(line) for line in Path(log).read_text().splitlines()]
        assert len(rows) == 8 and all(row["saved"] and len(row["losses"]) == 2 for row in rows), rows
        print("steps 0 to 3, then 4 to 7")


if __name__ == "__main__":
    main()
