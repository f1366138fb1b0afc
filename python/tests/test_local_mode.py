"""`num_workers=0`: the function runs here, with the same calls, without a head, files or processes."""

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import processes

import carril
from carril import data, train
from carril.exceptions import CheckpointError, ConfigError, MetricsError, NotFoundError
from carril.train import DataParallelTrainer, Result, RunConfig, ScalingConfig
from carril.train.collective import barrier, broadcast_from_rank_zero


def local(function: Any, config: dict[str, Any] | None = None, **run: Any) -> Result:
    return DataParallelTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(**run),
    ).fit()


def test_the_function_runs_in_this_process_and_nothing_is_started(storage: Path) -> None:
    here: list[Any] = []
    own = object()

    def function(config: dict[str, Any]) -> int:
        here.append((os.getpid(), config["x"], train.get_context().get_experiment_name()))
        train.report({"step": 0})
        train.report({"step": 1, "own": own})
        assert not processes()
        return 7

    result = local(function, {"x": 5}, storage_path=storage, name="named")
    assert here == [(os.getpid(), 5, "named")]
    assert result.return_value == 7 and result.path is None and result.log_dir is None and result.error is None
    assert result.metrics == {"step": 1, "own": own}
    assert [row["step"] for row in result.rank_metrics(0)] == [0, 1] == list(result.metrics_dataframe["step"])
    assert list(storage.iterdir()) == [] and not carril.is_initialized()
    with pytest.raises(NotFoundError, match="there is no rank 1"):
        result.rank_metrics(1)
    with pytest.raises(KeyError, match="no metric `loss` was reported; there are `step`, `own`"):
        result.metrics["loss"]


def test_the_context_is_that_of_a_group_of_one() -> None:
    def function() -> list[Any]:
        context = train.get_context()
        barrier()
        with pytest.raises(NotImplementedError, match="has no directory"):
            context.get_storage()
        return [
            (context.get_world_rank(), context.get_world_size(), context.get_local_rank()),
            (context.get_local_world_size(), context.get_node_rank(), context.get_trial_resources()),
            broadcast_from_rank_zero("same"),
            train.get_checkpoint(),
        ]

    assert local(function).return_value == [(0, 1, 0), (1, 0, {}), "same", None]


def test_values_become_plain_as_in_a_worker() -> None:
    import numpy

    def function() -> None:
        train.report(
            {"a": numpy.float32(0.5), "b": {"c": numpy.int64(3)}, "d": (1, numpy.bool_(True)), "e": numpy.ones(2)}
        )

    metrics = local(function).metrics
    assert metrics is not None
    assert (metrics["a"], metrics["b"], metrics["d"]) == (0.5, {"c": 3}, [1, True])
    assert type(metrics["a"]) is float and type(metrics["b"]["c"]) is int and type(metrics["d"][1]) is bool
    assert list(metrics["e"]) == [1.0, 1.0]


def test_what_is_no_metric_is_refused_as_in_a_worker() -> None:
    import torch

    def function() -> None:
        train.report({"weights": torch.ones(2, 2)})

    with pytest.raises(MetricsError, match=r"the metric `weights` is a `.*Tensor` of shape \[2, 2\]"):
        local(function)


def test_the_newest_checkpoint_is_kept_as_a_copy(tmp_path: Path) -> None:
    seen: list[Any] = []

    def function() -> None:
        for step in range(2):
            (tmp_path / "model").write_text(f"of step {step}")
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(tmp_path))
            (tmp_path / "model").write_text("overwritten")
            latest = train.get_checkpoint()
            assert latest is not None
            seen.append(Path(latest.path, "model").read_text())

    result = local(function)
    assert seen == ["of step 0", "of step 1"]
    assert result.checkpoint is not None and Path(result.checkpoint.path, "model").read_text() == "of step 1"
    ((best, metrics),) = result.best_checkpoints
    assert best is result.checkpoint and metrics == {"step": 1}


def test_a_checkpoint_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    def function() -> None:
        train.report({}, checkpoint=train.Checkpoint(tmp_path / "none"))

    with pytest.raises(CheckpointError, match="does not exist"):
        local(function)


def test_an_exception_comes_as_it_is_and_the_session_is_over() -> None:
    class Own(Exception):
        pass

    def function() -> None:
        raise Own("raw")

    with pytest.raises(Own, match="raw"):
        local(function)
    with pytest.raises(RuntimeError, match="outside a training function"):
        train.report({})
    assert local(lambda: "again").return_value == "again"


def test_one_at_a_time() -> None:
    def function() -> None:
        local(lambda: None)

    with pytest.raises(ConfigError, match=r"another `fit\(\)` with `num_workers=0` is running in this process\nhint: "):
        local(function)


def test_data_sets_are_there_and_begin_again_in_the_next_fit() -> None:
    def function() -> list[int]:
        shard = train.get_dataset_shard("train")
        return [row["id"] for epoch in range(2) for row in shard.iter_rows()]

    datasets = {"train": data.range(10).map(lambda row: {"id": row["id"] + 1})}
    for _ in range(2):
        result = DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=0), datasets=datasets).fit()
        assert result.return_value == [*range(1, 11), *range(1, 11)]


def test_under_torchrun_each_rank_has_its_part_of_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> list[int]:
        return [row["id"] for row in train.get_dataset_shard("train").iter_rows()]

    datasets = {"train": data.range(100).random_shuffle()}
    parts = []
    for rank in ("0", "1"):
        group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        for name, value in {"RANK": rank, "LOCAL_RANK": rank, **group}.items():
            monkeypatch.setenv(name, value)
        result = DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=0), datasets=datasets).fit()
        parts.append(result.return_value)
    assert [len(part) for part in parts] == [50, 50] and sorted(parts[0] + parts[1]) == list(range(100))


def test_under_torchrun_the_ranks_are_torchrun_s(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def function() -> list[int]:
        context = train.get_context()
        assert broadcast_from_rank_zero("mine") == "mine"
        return [
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_local_world_size(),
            context.get_node_rank(),
        ]

    assert local(function).return_value == [5, 8, 1, 4, 1]
