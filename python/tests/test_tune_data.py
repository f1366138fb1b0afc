"""Data sets of a trainer that is tuned: every trial reads them, and resumes where its checkpoint left them."""

from pathlib import Path
from typing import Any

import pytest
from searches import search

from carril import data, tune
from carril.train import Checkpoint, DataParallelTrainer, FailureConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("head")


def reads_all() -> Any:
    def loop(config: dict[str, Any]) -> None:
        from carril import train

        rows = [row["id"] for row in train.get_dataset_shard("train").iter_rows()]
        train.report({"loss": config["x"], "rows": len(rows), "sum": sum(rows)})

    return loop


def test_each_trial_of_a_trainer_reads_its_data_sets(storage: Path) -> None:
    trainer = DataParallelTrainer(
        reads_all(),
        scaling_config=ScalingConfig(num_workers=2),
        # With a function, for which the workers fork processes.
        datasets={"train": data.range(400).map(lambda row: {"id": row["id"] * 2})},
    )
    grid = search(storage, trainer, {"train_loop_config": {"x": tune.grid_search([1.0, 2.0])}})
    assert not grid.errors, grid.errors
    assert [result.metrics["rows"] for result in grid] == [200, 200]
    # Rank 0 has its part of them.
    assert all(0 < result.metrics["sum"] < sum(range(0, 800, 2)) for result in grid)


def test_data_sets_can_be_searched(storage: Path) -> None:
    trainer = DataParallelTrainer(reads_all(), train_loop_config={"x": 1.0}, datasets={"train": data.range(5)})
    space = {"datasets": {"train": tune.grid_search([data.range(10), data.range(30)])}}
    grid = search(storage, trainer, space)
    assert not grid.errors, grid.errors
    assert [result.metrics["rows"] for result in grid] == [10, 30]


def test_a_name_that_is_no_data_set_is_told_with_those_that_there_are(storage: Path) -> None:
    trainer = DataParallelTrainer(reads_all(), train_loop_config={"x": 1.0}, datasets={"rain": data.range(5)})
    grid = search(storage, trainer, {})
    assert "did you mean `rain`" in str(grid.errors[0])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_resumes_its_data_behind_its_checkpoint(storage: Path, workers: int) -> None:
    notes = str(storage / "notes")

    def loop(config: dict[str, Any]) -> None:
        import os

        from carril import train

        rank = train.get_context().get_world_rank()
        resumed = train.get_checkpoint() is not None
        for number, batch in enumerate(train.get_dataset_shard().iter_batches(batch_size=5)):
            with open(f"{notes}.{rank}", "a") as file:
                file.write("".join(f"{row}\n" for row in batch["id"]))
            train.report({"loss": 1.0}, checkpoint=Checkpoint.from_dict({}) if rank == 0 else None)
            if not resumed and number == 1 and rank == 0:
                os._exit(1)

    # Every rank reads as many batches; what the second had begun when the first was killed may come twice.
    trainer = DataParallelTrainer(
        loop, scaling_config=ScalingConfig(num_workers=workers), datasets={"train": data.range(40 * workers)}
    )
    grid = search(storage, trainer, {}, failure_config=FailureConfig(max_failures=1))
    assert not grid.errors, grid.errors
    read = [row for rank in range(workers) for row in Path(f"{notes}.{rank}").read_text().split()]
    assert {int(row) for row in read} == set(range(40 * workers))
    first = Path(f"{notes}.0").read_text().split()
    assert len(first) <= 45, "the rows before the checkpoint are not read again"
