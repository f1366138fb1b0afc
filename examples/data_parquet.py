"""Data from Parquet files: written, read, changed, shuffled, and trained on by two workers, through a failure in mid-epoch.

Each worker reads its own half of every epoch. How far it has come is kept with each checkpoint, so that the second attempt
goes on behind what the checkpoint has seen: no row comes twice in an epoch.

Run it with `python examples/data_parquet.py`.
"""

import tempfile

import numpy as np
import torch
from torch import nn

from carril import data, train
from carril.train.torch import TorchTrainer, prepare_model

ROWS = 20_000
EPOCHS = 3


def measured(batch: dict) -> dict:
    """What houses cost: by their size and age, and by chance."""
    number = batch["id"]
    size, age = 40 + number * 7919 % 160, number * 104_729 % 100
    price = 3.0 * size - 1.5 * age + np.sin(number) * 10
    return {"size": size, "age": age, "price": price}


def scaled(batch: dict) -> dict:
    """What a network likes: inputs in one array, around zero."""
    inputs = np.stack([(batch["size"] - 120) / 46, (batch["age"] - 50) / 29], axis=1)
    return {"inputs": inputs.astype(np.float32), "target": (batch["price"].astype(np.float32) - 285) / 145}


def learn(config: dict) -> None:
    context = train.get_context()
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    model = prepare_model(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    epoch, rows = 0, [0] * EPOCHS
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        kept = checkpoint.to_dict()
        network.load_state_dict(kept["model"])
        epoch, rows = kept["epoch"], kept["rows"]

    shard = train.get_dataset_shard("train")
    while epoch < EPOCHS:
        for step, batch in enumerate(shard.iter_torch_batches(batch_size=250)):
            loss = nn.functional.mse_loss(model(batch["inputs"]).squeeze(1), batch["target"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            both = torch.tensor(len(batch["target"]))
            torch.distributed.all_reduce(both)
            rows[epoch] += int(both)
            if step % 10 == 9:
                save(network, epoch, rows, loss)
            if checkpoint is None and epoch == 1 and step == 24 and context.get_world_rank() == 1:
                raise RuntimeError("this worker fails once, in the middle of the second epoch")
        epoch += 1
        save(network, epoch, rows, loss)


def save(network: nn.Module, epoch: int, rows: list[int], loss: torch.Tensor) -> None:
    checkpoint = None
    if train.get_context().get_world_rank() == 0:
        checkpoint = train.Checkpoint.from_dict({"model": network.state_dict(), "epoch": epoch, "rows": rows})
    train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=checkpoint)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        data.range(ROWS).map_batches(measured).write_parquet(directory)

        houses = data.read_parquet(directory)
        print(houses.schema(), houses.count())
        trainer = TorchTrainer(
            learn,
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(failure_config=train.FailureConfig(max_failures=1)),
            datasets={"train": houses.map_batches(scaled).random_shuffle()},
        )
        result = trainer.fit()
    rows = result.checkpoint.to_dict()["rows"]
    print(f"loss {result.metrics['loss']:.4f}; rows of each epoch, through a failure in the second: {rows}")
