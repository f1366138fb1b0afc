"""Ranks with unequal parts end an epoch together, by the policy that was chosen."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from carril import data
from carril.exceptions import ConfigError
from carril.train import DataConfig, DataParallelTrainer, RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("head")


def batches_of(storage: Path, dataset: Any, uneven: str, workers: int = 3) -> list[list[dict[str, list[Any]]]]:
    """By rank: the batches of one epoch."""

    def train(config: dict[str, Any]) -> None:
        import json
        from pathlib import Path

        from carril import train

        rank = train.get_context().get_world_rank()
        shard = train.get_dataset_shard("train")
        seen = [{name: column.tolist() for name, column in batch.items()} for batch in shard.iter_batches(batch_size=4)]
        Path(config["out"], f"{rank}.json").write_text(json.dumps(seen))
        train.report({"batches": len(seen)})

    out = storage / uneven
    out.mkdir()
    DataParallelTrainer(
        train,
        train_loop_config={"out": str(out)},
        datasets={"train": dataset},
        dataset_config=DataConfig(uneven=uneven),
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=uneven, storage_path=str(storage), verbose=0),
    ).fit()
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(workers)]


def ids(batches: list[dict[str, list[Any]]]) -> list[int]:
    return [int(number) for batch in batches for number in batch["id"]]


# 25 rows on 3 ranks: one has 9, which are three batches of 4, and two have 8, which are two.
COUNTED = 25


def counted() -> data.Dataset:
    return data.range(COUNTED)


def uncounted() -> data.Dataset:
    """Units of 10 rows, of which the first keeps 10, the second 5 and the third none."""
    blocks = data.range(30).repartition(3)
    return blocks.filter(lambda row: row["id"] < 15)


def test_what_is_left_over_is_dropped_and_told(storage: Path) -> None:
    ranks = batches_of(storage, counted(), "drop")
    logs = "".join(path.read_text(errors="replace") for path in storage.rglob("*.log"))
    assert "1 row of `train` is left out of each epoch" in logs
    assert [len(batches) for batches in ranks] == [2, 2, 2]
    assert sorted(ids([batch for batches in ranks for batch in batches])) == list(range(24))


def test_a_rank_without_batches_is_padded_with_marked_rows(storage: Path) -> None:
    ranks = batches_of(storage, counted(), "pad")
    assert [len(batches) for batches in ranks] == [3, 3, 3]
    real = Counter()
    for batches in ranks:
        for batch in batches:
            real.update(int(row) for row, padded in zip(batch["id"], batch["is_padding"], strict=True) if not padded)
    assert real == Counter(range(COUNTED))
    assert [any(batch["is_padding"]) for batch in ranks[1]] == [False, False, True]
    assert set(ranks[1][2]["id"]) == {ranks[1][1]["id"][-1]}


def test_a_rank_without_batches_begins_again(storage: Path) -> None:
    ranks = batches_of(storage, counted(), "repeat")
    assert [len(batches) for batches in ranks] == [3, 3, 3]
    assert ranks[1][2] == ranks[1][0] and ranks[2][2] == ranks[2][0]
    assert set(ids([batch for batches in ranks for batch in batches])) == set(range(COUNTED))


@pytest.mark.parametrize("uneven", ["pad", "repeat"])
def test_what_functions_make_is_evened_too(storage: Path, uneven: str) -> None:
    ranks = batches_of(storage, uncounted(), uneven)
    assert len({len(batches) for batches in ranks}) == 1
    assert set(ids([batch for batches in ranks for batch in batches])) == set(range(15))


def test_a_policy_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="'drop', 'pad' or 'repeat'"):
        DataConfig(uneven="loop")
