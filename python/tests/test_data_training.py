"""Data sets in training: every rank has its part, and a run that goes on reads what it has not read, and nothing twice.

The ledger: each rank writes the numbers that it was handed into its part of each checkpoint, so that a checkpoint holds what was
read before it and nothing else, whatever happens after it.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from runs import fit

from carril import data
from carril.data import Dataset
from carril.exceptions import CarrilError
from carril.train import FailureConfig


def ledger() -> Any:
    """A function that reads `epochs` passes, saves every `every` batches, and dies as it is told."""

    def function(config: dict[str, Any]) -> None:
        import json
        import os
        import tempfile
        from pathlib import Path

        from carril import train

        context = train.get_context()
        rank, base, own = context.get_world_rank(), [], []
        epoch = 0
        checkpoint = train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                for path in Path(directory).glob("ledger-*.json"):
                    base += json.loads(path.read_text())
                epoch = json.loads((Path(directory) / "epoch").read_text())
        attempts = len(list(Path(config["scratch"]).glob("attempt-*")))

        def save(epoch: int) -> None:
            with tempfile.TemporaryDirectory() as directory:
                mine = own + (base if rank == 0 else [])
                (Path(directory) / f"ledger-{rank}.json").write_text(json.dumps(mine))
                if rank == 0:
                    (Path(directory) / "epoch").write_text(str(epoch))
                train.report({"epoch": epoch}, checkpoint=train.Checkpoint(directory))

        shard = train.get_dataset_shard("train")
        dies = config["dies"][attempts] if attempts < len(config["dies"]) else None
        batches = 0
        while epoch < config["epochs"]:
            for batch in shard.iter_batches(batch_size=config["batch"]):
                own += [[epoch, int(number)] for number in batch["id"]]
                batches += 1
                if batches % config["every"] == 0:
                    save(epoch)
                if dies is not None and rank == dies[0] % context.get_world_size() and batches >= dies[1]:
                    (Path(config["scratch"]) / f"attempt-{attempts}").touch()
                    os.kill(os.getpid(), 9)
            epoch += 1
            save(epoch)

    return function


def read_back(result: Any) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    with result.checkpoint.as_directory() as directory:
        for path in Path(directory).glob("ledger-*.json"):
            seen += [tuple(pair) for pair in json.loads(path.read_text())]
    return seen


@pytest.mark.parametrize("kind", ["counted", "filtered"])
def test_each_sample_comes_once_in_each_epoch_through_kills_and_resizes(tmp_path: Path, kind: str) -> None:
    dice = random.Random(5)
    rows = 2400
    dataset: Dataset = data.from_items([{"id": number} for number in range(rows)]).repartition(24)
    if kind == "filtered":
        dataset = dataset.filter(lambda row: row["id"] >= 0)
    dataset = dataset.random_shuffle()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    dies = [(dice.randrange(4), dice.randrange(5, 25)) for _ in range(3)]
    config = {"epochs": 5, "batch": 20, "every": 3, "dies": dies, "scratch": str(scratch)}
    common = {
        "datasets": {"train": dataset},
        "failure_config": FailureConfig(max_failures=0, max_infrastructure_failures=0),
    }
    result = None
    for workers in (2, 3, 1, 2):
        try:
            result = fit(ledger(), tmp_path / "runs", workers=workers, config=config, name="ledger", **common)
        except CarrilError:
            continue
    assert len(list(scratch.glob("attempt-*"))) == 3, "every kill was carried out"
    assert result is not None
    seen = Counter(read_back(result))
    assert set(seen.values()) == {1}, [pair for pair, times in seen.items() if times > 1][:5]
    for epoch in range(5):
        missing = rows - sum(1 for e, _ in seen if e == epoch)
        assert missing < 3 if kind == "counted" else missing == 0, (epoch, missing)
