"""A CSV file is split and trained on by eight workers, in the style of the Ray Train guide. It runs unchanged.

The file has the measurements of four kinds of seeds, drawn by chance; a network learns to tell the kinds apart. Each worker
reads its own part of the training rows and of the validation rows.

Run it with `carril as-ray --num-cpus 8 -- python examples/data_ray_csv.py`.
"""

import argparse
import os
import tempfile

import numpy as np
import ray
import torch
from ray.air import Checkpoint, session
from ray.air.config import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

FEATURES = ("length", "width", "weight")
KINDS = 4


def write_measurements(path: str, rows: int) -> None:
    """A row for each seed; the kinds have different means, and overlap a little."""
    dice = np.random.default_rng(7)
    kinds = dice.integers(0, KINDS, rows)
    means = np.array([[4.0, 2.0, 1.0], [6.0, 2.5, 2.0], [5.0, 4.0, 3.0], [7.0, 3.5, 4.5]])
    values = means[kinds] + dice.normal(0.0, 0.4, (rows, len(FEATURES)))
    with open(path, "w") as file:
        file.write(",".join(("seed", *FEATURES, "kind")) + "\n")
        for number, (measured, kind) in enumerate(zip(values, kinds, strict=True)):
            file.write(f"{number},{measured[0]:.4f},{measured[1]:.4f},{measured[2]:.4f},{kind}\n")


def inputs_and_targets(batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([batch[name] for name in FEATURES], dim=1).float(), batch["kind"].long()


def train_loop_per_worker(config: dict) -> None:
    torch.manual_seed(0)
    train_shard = session.get_dataset_shard("train")
    validation_shard = session.get_dataset_shard("validation")
    network = nn.Sequential(nn.Linear(len(FEATURES), 32), nn.ReLU(), nn.Linear(32, KINDS))
    model = prepare_model(network)
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])

    for epoch in range(config["num_epochs"]):
        model.train()
        trained = 0
        for batch in train_shard.iter_torch_batches(batch_size=config["batch_size"]):
            inputs, targets = inputs_and_targets(batch)
            loss = loss_function(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained += len(targets)

        model.eval()
        correct = total = 0
        with torch.no_grad():
            for batch in validation_shard.iter_torch_batches(batch_size=256):
                inputs, targets = inputs_and_targets(batch)
                correct += (model(inputs).argmax(1) == targets).sum().item()
                total += len(targets)
        # Every worker has validated on rows of its own.
        counts = torch.tensor([correct, total, trained])
        torch.distributed.all_reduce(counts)
        correct, total, trained = counts.tolist()
        metrics = {"epoch": epoch, "accuracy": correct / total, "validated": total, "trained": trained}

        with tempfile.TemporaryDirectory() as directory:
            torch.save(network.state_dict(), os.path.join(directory, "model.pt"))
            session.report(metrics, checkpoint=Checkpoint.from_directory(directory))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8_000, help="how many seeds are measured")
    parser.add_argument("--num-workers", type=int, default=8, help="how many workers train")
    parser.add_argument("--num-epochs", type=int, default=3, help="how often each row is seen")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "seeds.csv")
        write_measurements(path, arguments.rows)
        train_dataset, validation_dataset = ray.data.read_csv(path).train_test_split(test_size=0.2, shuffle=True)
        trainer = TorchTrainer(
            train_loop_per_worker=train_loop_per_worker,
            train_loop_config={"lr": 0.02, "batch_size": 32, "num_epochs": arguments.num_epochs},
            scaling_config=ScalingConfig(num_workers=arguments.num_workers, use_gpu=False),
            datasets={"train": train_dataset, "validation": validation_dataset},
        )
        metrics = trainer.fit().metrics
    print(
        f"accuracy {metrics['accuracy']:.1%} on {metrics['validated']} rows, "
        f"after {metrics['epoch'] + 1} epochs of {metrics['trained']} rows"
    )


if __name__ == "__main__":
    main()
