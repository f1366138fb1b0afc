"""Runs whose number of workers changes in the middle of an epoch: each row once, whatever the data is made of and however little memory there is.

Each rank writes the numbers that it was handed into its part of each checkpoint, so that a checkpoint holds what was read before it and
nothing else.
"""

import random
from pathlib import Path
from typing import Any

import fsspec
import numpy
import pyarrow
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from carril import data
from carril.data import Dataset, ExecutionOptions, ExecutionResources
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
    """A function that reads one epoch, saves every few batches or at `places`, and whose last rank dies after `dies` of them."""

    def function(config: dict[str, Any]) -> None:
        import os
        import tempfile
        from pathlib import Path

        import numpy

        from carril import train

        context = train.get_context()
        rank, base, own = context.get_world_rank(), [], []
        checkpoint = train.get_checkpoint()
        if checkpoint is not None and rank == 0:
            with checkpoint.as_directory() as directory:
                base = [numpy.load(path) for path in sorted(Path(directory).glob("*.npy"))]

        def save() -> None:
            with tempfile.TemporaryDirectory(dir=config["scratch"]) as directory:
                rows = [*base, *own]
                numpy.save(f"{directory}/{rank}.npy", numpy.concatenate(rows) if rows else numpy.zeros(0, int))
                train.report({"rows": sum(map(len, own))}, checkpoint=train.Checkpoint(directory))

        def steps(how: str) -> Any:
            shard, size = train.get_dataset_shard("train"), config["batch"]
            if how == "rows":
                return (numpy.array([row["id"]]) for row in shard.iter_rows())
            if how == "torch":
                return (batch["id"].numpy() for batch in shard.iter_torch_batches(batch_size=size, prefetch_batches=4))
            if how == "collate":
                return iter(shard.iter_torch_batches(batch_size=size, collate_fn=lambda batch: batch["id"]))
            if how == "mixed":
                return (batch["id"] for batch in shard.iter_batches(batch_size=size, local_shuffle_buffer_size=90))
            return (batch["id"] for batch in shard.iter_batches(batch_size=size))

        # Of each rank others, and equally many.
        places = config.get("places")
        for number, ids in enumerate(steps(config.get("how", "batches"))):
            if config["dies"] == number and rank == context.get_world_size() - 1:
                os.kill(os.getpid(), 9)
            own.append(ids)
            if number % config["every"] == 0 if places is None else number in places[rank]:
                save()
        save()

    return function


def fit(path: Any, dataset: Dataset, workers: int, scratch: Path, dies: int | None, **more: Any) -> Any:
    config = {"batch": 500, "every": 3, "scratch": str(scratch), "dies": dies, **more.pop("config", {})}
    failures = FailureConfig(max_failures=0, max_infrastructure_failures=0)
    return DataParallelTrainer(
        ledger(),
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name="ledger", storage_path=path, failure_config=failures, resume=True, **more.pop("run", {})
        ),
        datasets={"train": dataset},
        **more,
    ).fit()


def lost(result: Any, rows: int) -> int:
    """How many of the numbers were not read. None was read twice."""
    with result.checkpoint.as_directory() as directory:
        seen = numpy.concatenate([numpy.load(path) for path in Path(directory).glob("*.npy")])
    assert len(numpy.unique(seen)) == len(seen), "a row was read twice"
    assert set(seen.tolist()) <= set(range(rows))
    return rows - len(seen)


def little_memory(megabytes: int) -> DataConfig:
    limits = ExecutionResources(object_store_memory=megabytes << 20)
    return DataConfig(execution_options=ExecutionOptions(resource_limits=limits))


def test_a_shuffled_epoch_of_several_windows_is_resumed_with_twice_the_workers(storage: Path, tmp_path: Path) -> None:
    rows = 400_000
    table = pyarrow.table({"id": numpy.arange(rows), **{f"x{n}": numpy.zeros(rows) for n in range(5)}})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=10_000)
    dataset = data.read_parquet(tmp_path / "rows.parquet").random_shuffle()
    config = {"batch": 5000, "every": 2}
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit(storage, dataset, 4, tmp_path, dies=7, config=config)
    result = fit(storage, dataset, 8, tmp_path, dies=None, config=config)
    assert 0 <= lost(result, rows) < 8


def test_the_budget_of_memory_decides_nothing(storage: Path, tmp_path: Path) -> None:
    rows = 60_000
    table = pyarrow.table(
        {"id": numpy.arange(rows), "x": numpy.random.default_rng(0).random(rows * 60).reshape(rows, 60).tolist()}
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=3_000)
    dataset = data.read_parquet(tmp_path / "rows.parquet").random_shuffle(seed=1)
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit(storage, dataset, 2, tmp_path, dies=20, dataset_config=little_memory(64))
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit(storage, dataset, 3, tmp_path, dies=9, dataset_config=little_memory(16))
    result = fit(storage, dataset, 2, tmp_path, dies=None)
    assert 0 <= lost(result, rows) < 2


def csv_files(directory: Path, sizes: list[int]) -> str:
    first = 0
    for number, size in enumerate(sizes):
        numbers = numpy.arange(first, first + size)
        pyarrow.csv.write_csv(pyarrow.table({"id": numbers, "x": numbers / 2}), directory / f"{number}.csv")
        first += size
    return f"{directory}/*.csv"


@pytest.mark.parametrize("dies", [10, 40, 41])
def test_files_that_nobody_counted_are_resumed_with_another_number_of_workers(
    storage: Path, tmp_path: Path, dies: int
) -> None:
    dataset = data.read_csv(csv_files(tmp_path, [20_000] * 5))
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit(storage, dataset, 2, tmp_path, dies=dies, config={"every": 1})
    result = fit(storage, dataset, 3, tmp_path, dies=None)
    assert 0 <= lost(result, 100_000) < 3


def test_less_than_a_row_for_each_rank_is_left_out_where_files_and_filters_are_uneven(
    storage: Path, tmp_path: Path
) -> None:
    uneven = data.read_csv(csv_files(tmp_path, [9_000, 100, 2_500, 7_001]))
    assert 0 <= lost(fit(storage / "files", uneven, 3, tmp_path, dies=None), 18_601) < 3
    kept = data.range(30_000).filter(lambda row: row["id"] < 5_000)
    assert 0 <= lost(fit(storage / "filter", kept, 3, tmp_path, dies=None), 5_000) < 3


@pytest.mark.parametrize("kind", ["pyarrow", "fsspec"])
def test_a_run_in_a_file_system_object_resumes_its_data(tmp_path: Path, kind: str) -> None:
    (tmp_path / "root").mkdir()
    filesystem: Any = (
        pyarrow.fs.SubTreeFileSystem(str(tmp_path / "root"), pyarrow.fs.LocalFileSystem())
        if kind == "pyarrow"
        else DirFileSystem(str(tmp_path / "root"), fsspec.filesystem("file", auto_mkdir=True))
    )
    run = {"storage_filesystem": filesystem}
    dataset = data.range(10_000).random_shuffle()
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit("runs", dataset, 2, tmp_path, dies=7, run=run)
    assert 0 <= lost(fit("runs", dataset, 3, tmp_path, dies=None, run=run), 10_000) < 3


def test_more_than_a_hundredth_that_is_left_out_is_told_at_the_end(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(storage, data.range(25), 3, tmp_path, dies=None)
    assert (
        "1 of 25 rows of `train` were left out, so that all ranks had equally many (4.0 %)" in capsys.readouterr().out
    )
    fit(storage / "more", data.range(2_500), 3, tmp_path, dies=None)
    assert "were left out" not in capsys.readouterr().out


def test_rows_that_drop_last_drops_are_rows_of_the_data_set_too(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def function() -> None:
        from carril import train

        for _ in range(2):
            for _ in train.get_dataset_shard("train").iter_batches(batch_size=2, drop_last=True):
                pass

    scaling, run = ScalingConfig(num_workers=3), RunConfig(storage_path=storage)
    datasets: Any = {"train": data.range(10)}
    DataParallelTrainer(function, scaling_config=scaling, run_config=run, datasets=datasets).fit()
    assert "2 of 20 rows of `train` were left out" in capsys.readouterr().out


def _kinds(directory: Path) -> dict[str, Dataset]:
    return {
        "counted": data.range(3_000).random_shuffle(seed=5),
        "files": data.read_csv(csv_files(directory, [900, 20, 1_300, 780])),
        "filter": data.range(4_500).filter(lambda row: row["id"] < 3_000).random_shuffle(seed=6),
    }


@pytest.mark.parametrize("kind", ["counted", "files", "filter"])
@pytest.mark.parametrize("how", ["rows", "batches", "torch", "collate", "mixed"])
def test_each_row_is_read_once_whatever_it_is_read_with_and_wherever_it_is_saved(
    storage: Path, tmp_path: Path, how: str, kind: str
) -> None:
    dataset, dice = _kinds(tmp_path)[kind], random.Random(f"{how} {kind}")
    # So many every rank makes before one dies.
    steps = 400 if how == "rows" else 12
    for workers in (3, 2):
        saves = dice.randrange(1, 6)
        places = [dice.sample(range(steps), saves) for _ in range(workers)]
        config = {"how": how, "batch": 33, "places": places}
        with pytest.raises(TrainingFailedError, match="SIGKILL"):
            fit(storage, dataset, workers, tmp_path, dies=steps, config=config)
        steps //= 2
    places = [dice.sample(range(steps), 1) for _ in range(4)]
    result = fit(storage, dataset, 4, tmp_path, dies=None, config={"how": how, "batch": 33, "places": places})
    assert 0 <= lost(result, 3_000) < 4


def test_rows_are_as_many_for_each_rank_where_nobody_counted_them(storage: Path, tmp_path: Path) -> None:
    kept = data.range(9_000).filter(lambda row: row["id"] < 3_001)
    result = fit(storage, kept, 3, tmp_path, dies=None, config={"how": "rows", "places": [[], [], []]})
    counts = [result.rank_metrics(rank)[-1]["rows"] for rank in range(3)]
    assert max(counts) - min(counts) <= 1
    assert lost(result, 3_001) == 3_001 - sum(counts) < 3


def test_a_rank_that_saves_before_it_asks_for_a_data_set_has_read_nothing_or_what_was_saved_of_it(
    storage: Path, tmp_path: Path
) -> None:
    def function(config: dict[str, Any]) -> None:
        import os
        import tempfile
        from pathlib import Path

        import numpy

        from carril import train
        from carril.train import collective

        rank, own = train.get_context().get_world_rank(), []
        checkpoint = train.get_checkpoint()
        if checkpoint is not None and rank == 0:
            with checkpoint.as_directory() as directory:
                own = [numpy.load(path) for path in sorted(Path(directory).glob("*.npy"))]
        if rank in config["reads"]:
            own += [batch["id"] for batch in train.get_dataset_shard("train").iter_batches(batch_size=100)]
        with tempfile.TemporaryDirectory(dir=config["scratch"]) as directory:
            numpy.save(f"{directory}/{rank}.npy", numpy.concatenate([*own, numpy.zeros(0, int)]))
            train.report({"rows": sum(map(len, own))}, checkpoint=train.Checkpoint(directory))
        collective.barrier()
        if config["dies"] and rank == 1:
            os.kill(os.getpid(), 9)

    def fit(workers: int, reads: list[int], dies: bool) -> Any:
        failures = FailureConfig(max_failures=0, max_infrastructure_failures=0)
        return DataParallelTrainer(
            function,
            train_loop_config={"reads": reads, "dies": dies, "scratch": str(tmp_path)},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name="asks", storage_path=storage, failure_config=failures, resume=True),
            datasets={"train": data.range(1_000).random_shuffle(), "other": data.range(10)},
        ).fit()

    # Rank 0 has ended the first epoch when it saves, and rank 1 has not asked for the data set.
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit(2, [0], dies=True)
    # Nobody has, in an attempt that resumes.
    with pytest.raises(TrainingFailedError, match="SIGKILL"):
        fit(3, [], dies=True)
    assert lost(fit(4, [0, 1, 2, 3], dies=False), 1_000) == 0
