"""What a worker knows about itself, and what the same functions say where there is no worker."""

import os
from pathlib import Path
from typing import Any

import pytest
from runs import fit

from carril import train
from carril.train import DataParallelTrainer, RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("head")


def test_every_method_of_the_context_answers_in_a_worker(storage: Path) -> None:
    def function() -> list[dict[str, Any]]:
        from carril import train
        from carril.train.collective import barrier

        context = train.get_context()
        store = context.get_storage()
        train.report(
            {
                "world": [context.get_world_rank(), context.get_world_size()],
                "local": [context.get_local_rank(), context.get_local_world_size(), context.get_node_rank()],
                "names": [context.get_experiment_name(), context.get_trial_name()],
                "ids": [context.get_run_id(), context.get_trial_id()],
                "directory": context.get_trial_dir(),
                "resources": context.get_trial_resources(),
                "metadata": context.get_metadata(),
                "storage": [store.storage_fs_path, store.experiment_dir_name, store.experiment_fs_path],
                "checkpoint": store.build_checkpoint_path_from_name("checkpoint_000000"),
                "repr": repr(context),
                "preemption": train.get_preemption_info(),
                "start": train.get_checkpoint(),
            }
        )
        barrier()
        return []

    trainer = DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=3, resources_per_worker={"CPU": 2}),
        run_config=RunConfig(name="who", storage_path=storage),
    )
    result = trainer.fit()
    path = str(storage / "who")
    for rank in range(3):
        (row,) = result.rank_metrics(rank)
        assert row["world"] == [rank, 3] and row["local"] == [rank, 3, 0]
        assert row["names"] == ["who", "who"]
        assert row["ids"][0] == row["ids"][1] == result.metrics["experiment_id"]  # type: ignore[index]
        assert row["directory"] == path and row["resources"] == {"CPU": 2.0} and row["metadata"] == {}
        assert row["storage"] == [str(storage), "who", path]
        assert row["checkpoint"] == f"{path}/checkpoint_000000"
        assert row["repr"] == f"TrainContext(rank={rank}, world_size=3)"
        assert row["preemption"] is None and row["start"] is None


def test_a_worker_has_torchrun_s_environment_and_the_driver_s_directory(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function() -> None:
        import os
        import sys

        from carril import train

        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
        train.report({name: os.environ[name] for name in names} | {"directory": os.getcwd(), "path": sys.path})
        train.report({"given": os.environ.get("GIVEN"), "mine": os.environ.get("MINE")})

    monkeypatch.setenv("MINE", "the driver's")
    result = fit(function, storage, worker_runtime_env={"env_vars": {"GIVEN": "as asked"}})
    rows = [result.rank_metrics(rank)[0] for rank in range(2)]
    for rank, row in enumerate(rows):
        assert (row["RANK"], row["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (row["WORLD_SIZE"], row["LOCAL_WORLD_SIZE"], row["NODE_RANK"]) == ("2", "2", "0")
        assert row["directory"] == os.getcwd()
        assert result.rank_metrics(rank)[1]["given"] == "as asked"
        assert result.rank_metrics(rank)[1]["mine"] == "the driver's"
    assert rows[0]["MASTER_PORT"] == rows[1]["MASTER_PORT"] != "0"
    assert rows[0]["MASTER_ADDR"] == rows[1]["MASTER_ADDR"] == "127.0.0.1"


def test_two_workers_do_not_draw_the_same_random_numbers(storage: Path) -> None:
    def function() -> None:
        import os
        import random

        import numpy

        from carril import train

        train.report({"random": random.random(), "numpy": float(numpy.random.rand()), "bytes": os.urandom(8).hex()})

    results = [fit(function, storage), fit(function, storage)]
    for name in ("random", "numpy", "bytes"):
        drawn = [result.rank_metrics(rank)[0][name] for result in results for rank in range(2)]
        assert len(set(drawn)) == 4, (name, drawn)


def test_the_function_gets_its_config_or_an_empty_one_or_nothing(storage: Path) -> None:
    def with_config(config: dict[str, Any]) -> dict[str, Any]:
        return config

    def with_default(config: Any = "default") -> Any:
        return config

    def without() -> str:
        return "nothing"

    assert fit(with_config, storage, workers=1, config={"lr": 0.5, "f": len}).return_value == {"lr": 0.5, "f": len}
    assert fit(with_config, storage, workers=1).return_value == {}
    assert fit(with_default, storage, workers=1, config={"lr": 1}).return_value == "default"
    assert fit(without, storage, workers=1, config={"lr": 1}).return_value == "nothing"


def test_a_method_a_partial_and_a_callable_object_can_be_trained(storage: Path) -> None:
    import functools

    class Model:
        def __init__(self, scale: int) -> None:
            self.scale = scale

        def train(self, config: dict[str, Any]) -> int:
            return int(self.scale * config["x"])

        def __call__(self) -> int:
            return self.scale

    def function(scale: int, config: dict[str, Any]) -> int:
        return int(scale * config["x"])

    assert fit(Model(3).train, storage, workers=1, config={"x": 5}).return_value == 15
    assert fit(Model(3), storage, workers=1).return_value == 3
    assert fit(functools.partial(function, 4), storage, workers=1, config={"x": 5}).return_value == 20


@pytest.mark.parametrize(
    "name", ["get_context", "get_checkpoint", "get_preemption_info", "get_all_reported_checkpoints"]
)
def test_outside_a_worker_a_function_says_where_it_belongs(name: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        getattr(train, name)()
    text = str(caught.value)
    assert text.startswith(f"`{name}()` was called outside a training function\nhint: call it in the function that")


def test_outside_a_worker_report_and_the_rest_say_so_too() -> None:
    for call, name in (
        (lambda: train.report({"a": 1}), "report()"),
        (lambda: train.get_dataset_shard("train"), "get_dataset_shard()"),
        (train.collective.barrier, "barrier()"),
        (lambda: train.collective.broadcast_from_rank_zero(1), "broadcast_from_rank_zero()"),
        (train.torch.get_device, "get_devices()"),
        (train.TrainContext().get_world_rank, "get_world_rank()"),
    ):
        with pytest.raises(RuntimeError, match="outside a training function") as caught:
            call()
        assert name in str(caught.value)
    assert repr(train.TrainContext()) == "TrainContext()"


def test_a_data_set_that_was_not_given_is_told_in_a_worker(storage: Path) -> None:
    def function() -> list[str]:
        from carril import train

        said = []
        for call in (train.get_dataset_shard, lambda: train.get_dataset_shard("x")):
            try:
                call()
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        return said

    shard, named = fit(function, storage, workers=1).return_value
    assert shard.startswith("KeyError: ") and "the trainer was given no `datasets`" in shard
    assert named.startswith("KeyError: ") and "no data set is named 'x'" in named
