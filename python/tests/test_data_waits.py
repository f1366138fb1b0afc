"""Ranks that do not read a data set whose rows nobody counted: whoever waits for them learns who is missing, and waits no longer than it must."""

from typing import Any

import pytest

from carril import data
from carril.data import Dataset
from carril.train import DataConfig, DataParallelTrainer, RunConfig, ScalingConfig, TrainingFailedError

pytestmark = pytest.mark.usefixtures("head")


def uncounted(rows: int) -> Dataset:
    return data.range(rows).filter(lambda row: True)


def fit(function: Any, storage: Any, workers: int = 2, config: Any = None, **more: Any) -> Any:
    run = RunConfig(storage_path=storage, **more.pop("run", {}))
    more.setdefault("datasets", {"train": uncounted(1_000)})
    return DataParallelTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=run,
        **more,
    ).fit()


def one_reads(config: dict[str, Any]) -> None:
    """All ranks but the last read."""
    from carril import train

    context = train.get_context()
    rank, rows = context.get_world_rank(), 0
    is_last = rank == context.get_world_size() - 1
    if is_last and config["asks"]:
        train.get_dataset_shard("train")
    for _ in range(0 if is_last else config["epochs"]):
        rows += sum(len(batch["id"]) for batch in train.get_dataset_shard("train").iter_batches(batch_size=20))
    if config["then"] == "barrier":
        train.collective.barrier()
    if config["then"] == "checkpoint":
        train.report({"rows": rows}, checkpoint=train.Checkpoint.from_dict({"rows": rows}))
        train.get_checkpoint()
    elif not is_last:
        train.report({"rows": rows})


@pytest.mark.parametrize("uneven", ["drop", "pad", "repeat"])
@pytest.mark.parametrize("asks", [True, False])
def test_a_rank_that_has_returned_is_not_waited_for(
    storage: Any, capfd: pytest.CaptureFixture[str], asks: bool, uneven: str
) -> None:
    config = {"asks": asks, "epochs": 2, "then": ""}
    result = fit(one_reads, storage, 3, config, dataset_config=DataConfig(uneven=uneven))
    # Its own part of each epoch; of the rest of a round it may have less.
    assert 2 * 300 <= result.rank_metrics(0)[-1]["rows"] <= 2 * 1_000
    shown = "".join(capfd.readouterr())
    assert "rank 2 has returned and reads no more of `train`: the others go on without it" in shown


@pytest.mark.parametrize(
    ("then", "where"), [("barrier", "in `barrier` number 1"), ("checkpoint", "for the checkpoint of report 1")]
)
def test_ranks_that_wait_for_each_other_in_a_data_set_are_named(storage: Any, then: str, where: str) -> None:
    with pytest.raises(TrainingFailedError) as caught:
        fit(one_reads, storage, 2, {"asks": True, "epochs": 1, "then": then})
    told = str(caught.value)
    assert "the ranks wait for each other: rank 0 waits for batch 1 of `train` of rank 1" in told, told
    assert where in told and "datasets_to_split" in told, told


def evaluates_alone() -> None:
    from carril import train

    rank = train.get_context().get_world_rank()
    for _ in range(2):
        rows = sum(len(batch["id"]) for batch in train.get_dataset_shard("train").iter_batches(batch_size=20))
        judged = None
        if rank == 0:
            judged = sum(len(batch["id"]) for batch in train.get_dataset_shard("test").iter_batches(batch_size=20))
        train.report({"rows": rows, "judged": judged})


def test_a_rank_that_evaluates_alone_is_told_how_to(storage: Any) -> None:
    sets = {"train": uncounted(1_000), "test": uncounted(100)}
    with pytest.raises(TrainingFailedError, match="rank 0 waits for batch 1 of `test` of rank 1") as caught:
        fit(evaluates_alone, storage / "split", datasets=sets)
    assert "rank 1 waits for batch 1 of `train` of rank 0" in str(caught.value)
    only = DataConfig(datasets_to_split=["train"])
    result = fit(evaluates_alone, storage / "whole", datasets=sets, dataset_config=only)
    assert result.metrics["judged"] == 100


def test_a_hang_says_who_is_waited_for_in_which_data_set(storage: Any) -> None:
    def sleeps() -> None:
        import threading

        from carril import train

        if train.get_context().get_world_rank() == 1:
            threading.Event().wait()
        for _ in train.get_dataset_shard("train").iter_batches(batch_size=20):
            pass

    with pytest.raises(TrainingFailedError, match="no progress for 4") as caught:
        fit(sleeps, storage, run={"hang_timeout": 4})
    assert "rank 0 waits for batch 1 of `train` of rank 1" in str(caught.value)
