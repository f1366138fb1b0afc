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

from carril import data
from carril.data import Dataset
from carril.train import (
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)

pytestmark = pytest.mark.usefixtures("head")


def ledger() -> Any:
    """A function that reads `epochs` passes, saves every `every` batches, and dies as it was asked to."""

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
            with tempfile.TemporaryDirectory(dir=config["scratch"]) as directory:
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


def fit(storage: Path, dataset: Dataset, workers: int, config: dict[str, Any]) -> Any:
    run_config = RunConfig(
        name="ledger",
        storage_path=storage,
        # What cuts it short is in its config.
        resume=True,
        failure_config=FailureConfig(max_failures=0, max_infrastructure_failures=0),
    )
    return DataParallelTrainer(
        ledger(),
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=run_config,
        datasets={"train": dataset},
    ).fit()


@pytest.mark.parametrize("kind", ["counted", "of functions"])
def test_each_sample_comes_once_in_each_epoch_through_kills_and_resizes(
    storage: Path, tmp_path: Path, kind: str
) -> None:
    dice, rows, epochs = random.Random(5), 2400, 5
    dataset: Dataset = data.from_items([{"id": number} for number in range(rows)]).repartition(24)
    if kind == "of functions":
        dataset = dataset.flat_map(lambda row: [row])
    dataset = dataset.random_shuffle()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    dies = [(dice.randrange(4), dice.randrange(5, 25)) for _ in range(3)]
    config = {"epochs": epochs, "batch": 20, "every": 3, "dies": dies, "scratch": str(scratch)}
    for workers in (2, 3, 1):
        with pytest.raises(TrainingFailedError, match="SIGKILL"):
            fit(storage, dataset, workers, config)
    seen = Counter(read_back(fit(storage, dataset, 2, config)))
    assert len(list(scratch.glob("attempt-*"))) == 3, "every kill was carried out"
    assert set(seen.values()) == {1}, [pair for pair, times in seen.items() if times > 1][:5]
    missing = [rows - sum(1 for of, _ in seen if of == epoch) for epoch in range(epochs)]
    # Counted rows are dealt to the row; of what is not, the rank with the fewest batches ends the epoch.
    assert max(missing) < (3 if kind == "counted" else 3 * 20), missing


def test_every_rank_has_its_part_and_names_that_are_not_there_are_told(storage: Path) -> None:
    def function() -> dict[str, Any]:
        from carril import train

        shard = train.get_dataset_shard("train")
        passes = [[int(row["id"]) for row in shard.iter_rows()] for _ in range(2)]
        whole = [int(row["item"]) for row in train.get_dataset_shard("all").iter_rows()]
        try:
            train.get_dataset_shard("test")
        except KeyError as error:
            told = str(error)
        try:
            train.get_dataset_shard("trian")
        except KeyError as error:
            told += str(error)
        train.report({"passes": passes, "whole": whole, "told": told})
        return {}

    result = DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage),
        datasets={"train": data.range(101).random_shuffle(), "all": [1, 2, 3]},
        dataset_config=DataConfig(datasets_to_split=["train"]),
    ).fit()
    ranks = [result.rank_metrics(rank)[0] for rank in (0, 1)]
    for number in (0, 1):
        parts = [rank["passes"][number] for rank in ranks]
        assert [len(part) for part in parts] == [50, 50] and len(set(parts[0]) | set(parts[1])) == 100
    assert ranks[0]["passes"][0] != ranks[0]["passes"][1], "epochs differ"
    assert [rank["whole"] for rank in ranks] == [[1, 2, 3]] * 2
    assert "no data set is named 'test'; there are `train`, `all`" in ranks[0]["told"]
    assert "no data set is named 'trian'; did you mean `train`? there are" in ranks[0]["told"]


@pytest.mark.parametrize("dataset", [data.range(60), data.range(60).random_shuffle(seed=3)], ids=["plain", "shuffled"])
def test_a_data_set_that_is_not_split_is_gone_on_with_by_each_rank(storage: str, dataset: Dataset) -> None:
    def function() -> list[int]:
        import json

        from carril import train

        seen: list[int] = []
        rank, latest = train.get_context().get_world_rank(), train.get_checkpoint()
        if latest is not None:
            seen = latest.to_dict()["seen"]
        for number, batch in enumerate(train.get_dataset_shard("all").iter_batches(batch_size=10)):
            seen += [int(value) for value in batch["id"]]
            # What both have read is the same, since each reads all.
            train.report({"rank": rank}, checkpoint=train.Checkpoint.from_dict({"seen": seen}) if rank == 0 else None)
            if latest is None and number == 2:
                # The other one has reported by then, too: only then there is a checkpoint.
                train.collective.barrier()
                raise RuntimeError("in the middle of the epoch")
        train.report({"seen": json.dumps(seen)})
        return seen

    result = DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=1)),
        datasets={"all": dataset},
        dataset_config=DataConfig(datasets_to_split=[]),
    ).fit()
    assert len(result.restarts) == 1
    for rank in (0, 1):
        assert sorted(json.loads(result.rank_metrics(rank)[-1]["seen"])) == list(range(60)), rank
