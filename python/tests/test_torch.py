"""PyTorch in the workers: the process group, models and data loaders over the ranks, devices, reproducible numbers.

Torch is imported once, by the first fixture, in the driver; the workers are forked from a process that has it too.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from runs import NO_RESTART

from carril import train
from carril.exceptions import ConfigError
from carril.train import DataParallelTrainer, Result, RunConfig, ScalingConfig, WorkerGroupError
from carril.train.torch import TorchConfig, TorchTrainer


@pytest.fixture(scope="module", autouse=True)
def torch_is_imported(head: None) -> None:
    import torch  # noqa: F401


def fit(function: Any, storage: Path, workers: int = 2, trainer: Any = TorchTrainer, **arguments: Any) -> Result:
    result: Result = trainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, failure_config=NO_RESTART),
        **arguments,
    ).fit()
    return result


def test_a_rank_that_returns_at_once_leaves_the_group_when_all_have_joined_it(storage: Path) -> None:
    """Rank 1 is held between its connection and its word that it has joined, until the function of rank 0 has returned."""
    place = str(storage / "seen")

    class Late(TorchConfig):
        def setup(self, session: Any) -> None:
            import os
            import time

            import torch.distributed as distributed

            from carril.train.torch import _config

            join, destroy = _config._join, distributed.destroy_process_group

            def late(module: Any) -> None:
                until = time.monotonic() + 30
                while not os.path.exists(place + "-returned") and time.monotonic() < until:
                    time.sleep(0.001)
                until = time.monotonic() + 0.3
                while not os.path.exists(place + "-left") and time.monotonic() < until:
                    time.sleep(0.001)
                open(place + ("-late" if os.path.exists(place + "-left") else "-in-time"), "w").close()
                join(module)

            def leave() -> None:
                open(place + "-left", "w").close()
                destroy()

            if session.rank == 1:
                _config._join = late
            else:
                distributed.destroy_process_group = leave
            super().setup(session)

    def function() -> None:
        open(place + "-returned", "w").close()

    fit(function, storage, torch_config=Late())
    seen = sorted(name.name for name in storage.glob("seen-*"))
    assert seen == ["seen-in-time", "seen-left", "seen-returned"]


def test_the_process_group_is_there_when_the_function_begins(storage: Path) -> None:
    def function() -> None:
        import os

        import torch
        import torch.distributed as distributed

        from carril import train
        from carril.train.torch import get_device, get_devices

        total = torch.tensor(float(distributed.get_rank() + 1))
        distributed.all_reduce(total)
        train.report(
            {
                "group": [distributed.get_backend(), distributed.get_rank(), distributed.get_world_size()],
                "total": total,
                "devices": [str(get_device()), [str(device) for device in get_devices()]],
                "accelerate": os.environ["ACCELERATE_TORCH_DEVICE"],
                "threads": torch.get_num_threads(),
                "drawn": torch.rand(()),
            }
        )

    result = fit(function, storage, workers=3)
    rows = [result.rank_metrics(rank)[0] for rank in range(3)]
    for rank, row in enumerate(rows):
        assert row["group"] == ["gloo", rank, 3] and row["total"] == 6.0
        assert row["devices"] == ["cpu", ["cpu"]] and row["accelerate"] == "cpu" and row["threads"] == 1
    assert len({row["drawn"] for row in rows}) == 3, "two workers do not draw the same random numbers"


@pytest.mark.parametrize("config", [TorchConfig(backend="gloo", init_method="tcp", timeout_s=5), {"timeout_s": 60}])
def test_the_group_can_be_configured(storage: Path, config: Any) -> None:
    def function() -> Any:
        import torch.distributed as distributed

        distributed.barrier()
        return distributed.get_backend()

    assert fit(function, storage, torch_config=config).return_value == "gloo"


def test_a_function_written_for_torchrun_makes_its_own_group(storage: Path) -> None:
    def function() -> float:
        import torch
        import torch.distributed as distributed

        assert not distributed.is_initialized()
        distributed.init_process_group("gloo")
        total = torch.ones(())
        distributed.all_reduce(total)
        distributed.destroy_process_group()
        return float(total)

    assert fit(function, storage, workers=2, trainer=DataParallelTrainer).return_value == 2.0


def test_prepare_model_wraps_in_ddp_and_ranks_learn_the_same(storage: Path) -> None:
    def function() -> list[str]:
        import torch

        from carril import train
        from carril.train.torch import prepare_model

        rank = train.get_context().get_world_rank()
        torch.manual_seed(rank)
        model = prepare_model(torch.nn.Linear(2, 1), parallel_strategy_kwargs={"find_unused_parameters": True})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs = torch.full((4, 2), float(rank + 1))
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            weights = [parameter.tolist() for parameter in model.parameters()]
            train.report({"loss": loss, "weights": weights, "inner": type(model.module).__name__})
        kinds = [type(model).__name__, str(model.find_unused_parameters)]
        kinds.append(type(prepare_model(torch.nn.Linear(1, 1), parallel_strategy=None)).__name__)
        kinds.append(type(prepare_model(torch.nn.Linear(1, 1), move_to_device=False)).__name__)
        for strategy in ("fsdp", "zero"):
            try:
                prepare_model(torch.nn.Linear(1, 1), parallel_strategy=strategy)
            except Exception as error:
                kinds.append(f"{type(error).__name__}: {error}")
        return kinds

    result = fit(function, storage)
    ranks = [result.rank_metrics(rank) for rank in range(2)]
    assert [row["weights"] for row in ranks[0]] == [row["weights"] for row in ranks[1]], "gradients are averaged"
    assert [row["loss"] for row in ranks[0]] != [row["loss"] for row in ranks[1]]
    assert ranks[0][0]["inner"] == "Linear"
    ddp, option, plain, unmoved, fsdp, unknown = result.return_value
    assert (ddp, option, plain, unmoved) == ("DistributedDataParallel", "True", "Linear", "DistributedDataParallel")
    assert fsdp == "RuntimeError: `prepare_model(parallel_strategy='fsdp')` needs GPUs, and this worker has none"
    assert unknown.startswith("ConfigError: `parallel_strategy` is 'zero': it must be 'ddp', 'fsdp' or None")


def test_one_worker_gets_its_model_and_loader_as_they_are(storage: Path) -> None:
    def function() -> list[bool]:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        from carril.train.torch import prepare_data_loader, prepare_model

        model = torch.nn.Linear(1, 1)
        loader: Any = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2)
        return [prepare_model(model) is model, prepare_data_loader(loader) is loader]

    assert fit(function, storage, workers=1).return_value == [True, True]


def test_prepare_data_loader_splits_the_data_and_keeps_the_loader_s_options(storage: Path) -> None:
    def function() -> list[Any]:
        import torch
        from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

        from carril import train
        from carril.train.torch import prepare_data_loader

        class Squares(Dataset):  # type: ignore[type-arg]
            def __len__(self) -> int:
                return 10

            def __getitem__(self, index: int) -> int:
                return index * index

        data = TensorDataset(torch.arange(10))
        plain = prepare_data_loader(DataLoader(data, batch_size=2))
        shuffled = prepare_data_loader(DataLoader(data, batch_size=5, shuffle=True))
        orders = []
        for epoch in range(3):
            shuffled.sampler.set_epoch(epoch)
            orders.append([int(value) for (batch,) in shuffled for value in batch])
        # Workers of the loader, with a class that came by value.
        by_workers = prepare_data_loader(
            DataLoader(Squares(), batch_size=3, num_workers=2, drop_last=True, collate_fn=list)
        )
        train.report(
            {
                "plain": [batch[0].tolist() for batch in plain],
                "orders": orders,
                "workers": [list(batch) for batch in by_workers],
                "options": [by_workers.batch_size, by_workers.num_workers, by_workers.drop_last],
                "sampler": isinstance(plain.sampler, DistributedSampler),
            }
        )
        return []

    result = fit(function, storage)
    rows = [result.rank_metrics(rank)[0] for rank in range(2)]
    assert [row["plain"] for row in rows] == [[[0, 2], [4, 6], [8]], [[1, 3], [5, 7], [9]]]
    for first, second in zip(rows[0]["orders"], rows[1]["orders"], strict=True):
        assert sorted(first + second) == list(range(10)), "each sample once"
    assert len({tuple(order) for order in rows[0]["orders"]}) == 3, "another order in each epoch"
    assert [row["workers"] for row in rows] == [[[0, 4, 16]], [[1, 9, 25]]]
    assert rows[0]["options"] == [3, 2, True] and rows[0]["sampler"] is True


def test_prepare_data_loader_leaves_alone_what_it_must_not_split(storage: Path) -> None:
    def function() -> list[Any]:
        import warnings

        import torch
        from torch.utils.data import (
            BatchSampler,
            DataLoader,
            DistributedSampler,
            IterableDataset,
            SequentialSampler,
            TensorDataset,
            WeightedRandomSampler,
        )

        from carril.train.torch import prepare_data_loader

        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self):  # type: ignore[no-untyped-def]
                return iter(range(3))

        class Own(BatchSampler):
            pass

        data = TensorDataset(torch.arange(4))
        stream = DataLoader(Stream())
        split = DataLoader(data, sampler=DistributedSampler(data))
        asked: Any = DataLoader(data)
        told = [
            prepare_data_loader(stream) is stream,
            prepare_data_loader(split) is split,
            prepare_data_loader(asked, add_dist_sampler=False) is asked,
            prepare_data_loader(DataLoader(data, batch_size=None)).batch_size,
        ]
        try:
            prepare_data_loader(DataLoader(data, batch_sampler=Own(SequentialSampler(data), 2, False)))
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            prepare_data_loader(DataLoader(data, sampler=WeightedRandomSampler([1.0] * 4, 4)))
        told.append([str(warning.message) for warning in caught])
        return told

    stream, split, asked, unbatched, own, warned = fit(function, storage).return_value
    assert stream and split and asked and unbatched is None
    assert own.startswith("ConfigError: the data loader has a batch sampler of its own, an Own, which cannot be split")
    assert "hint: make it split by rank and pass `add_dist_sampler=False`" in own
    assert len(warned) == 1 and "WeightedRandomSampler is replaced by a DistributedSampler" in warned[0]


def test_enable_reproducibility_gives_every_run_the_same_numbers(storage: Path) -> None:
    def function() -> Any:
        import os
        import random

        import numpy
        import torch

        from carril.train.torch import enable_reproducibility

        enable_reproducibility(7)
        return [
            torch.rand(3).tolist(),
            random.random(),
            float(numpy.random.rand()),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.benchmark,
            os.environ["CUBLAS_WORKSPACE_CONFIG"],
        ]

    first, second = (fit(function, storage, workers=1).return_value for _ in range(2))
    assert first == second and first[3:] == [True, False, ":4096:8"]


def test_a_model_is_kept_in_a_checkpoint_and_comes_back(storage: Path) -> None:
    def function(config: dict[str, Any]) -> list[float]:
        import os
        import tempfile

        import torch

        from carril import train

        model = torch.nn.Linear(3, 1)
        with tempfile.TemporaryDirectory() as directory:
            torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
            given = train.Checkpoint.from_directory(directory) if train.get_context().get_world_rank() == 0 else None
            train.report({"loss": torch.tensor(0.5)}, checkpoint=given)
        values: list[float] = model.weight.flatten().tolist()
        return values

    import torch

    result = fit(function, storage)
    assert result.checkpoint is not None and result.metrics is not None and result.metrics["loss"] == 0.5
    with result.checkpoint.as_directory() as directory:
        state = torch.load(os.path.join(directory, "model.pt"), weights_only=True)
    assert state["weight"].flatten().tolist() == result.return_value


def test_a_rank_that_fails_ends_the_others_although_they_wait_for_it_in_the_group(storage: Path) -> None:
    def function() -> None:
        import torch.distributed as distributed

        if distributed.get_rank() == 1:
            raise ValueError("the first cause")
        distributed.barrier()

    with pytest.raises(WorkerGroupError, match="rank 1 failed: ValueError: the first cause"):
        fit(function, storage, workers=3)


def local(function: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0)).fit()


def test_a_rank_that_returned_is_named_where_gloo_speaks_of_a_connection(storage: Path) -> None:
    def function() -> None:
        import torch
        import torch.distributed as distributed

        for _ in range(3 - distributed.get_rank()):
            distributed.all_reduce(torch.ones(1))

    with pytest.raises(WorkerGroupError) as caught:
        fit(function, storage)
    named = "rank 0 failed: RuntimeError: rank 1 returned while this rank waited in a collective of torch ("
    assert str(caught.value).startswith(named)
    assert "hint: every rank must make the same collective calls" in str(caught.value)
    assert caught.value.code == "collective-mismatch"


def test_in_local_mode_there_is_no_group_and_nothing_is_wrapped() -> None:
    import torch

    def function() -> list[Any]:
        model = train.torch.prepare_model(torch.nn.Linear(1, 1))
        return [torch.distributed.is_initialized(), type(model).__name__, str(train.torch.get_device())]

    assert local(function).return_value == [False, "Linear", "cpu"]


@pytest.fixture
def only_rank_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": port}
    for name, value in {**environment, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("only_rank_of_torchrun")
def test_in_local_mode_under_torchrun_the_group_is_made_and_ended_also_after_a_failure() -> None:
    import torch.distributed as distributed

    def fails() -> None:
        assert distributed.is_initialized()
        raise ValueError("raw")

    with pytest.raises(ValueError, match="raw"):
        local(fails)
    assert not distributed.is_initialized()
    assert local(lambda: distributed.get_world_size()).return_value == 1
    assert not distributed.is_initialized()


@pytest.mark.usefixtures("only_rank_of_torchrun")
def test_in_local_mode_under_torchrun_no_model_is_left_to_the_end_of_the_interpreter() -> None:
    """One that holds the group and goes only then may end the process with SIGABRT, after all went well."""
    import gc
    import weakref

    import torch

    def function() -> Any:
        model = torch.nn.Linear(1, 1)
        model.itself = model
        return weakref.ref(model)

    gc.disable()
    try:
        assert local(function).return_value() is None
    finally:
        gc.enable()


def test_a_loader_for_a_device_moves_batches_of_any_shape() -> None:
    import collections

    import torch
    from torch.utils.data import DataLoader

    from carril.train.torch._loader import DeviceLoader

    Pair = collections.namedtuple("Pair", "left right")
    batches = [{"a": torch.ones(2), "b": [torch.ones(1), "text"]}, (torch.ones(1), Pair(torch.ones(1), 3))]
    inner: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    loader = DeviceLoader(inner, torch.device("meta"), auto_transfer=True)
    assert isinstance(loader, DataLoader) and len(loader) == 2 and loader.dataset is batches
    for _ in range(2):
        first, second = loader
        assert first["a"].device.type == first["b"][0].device.type == "meta" and first["b"][1] == "text"
        assert second[0].device.type == second[1].left.device.type == "meta" and second[1].right == 3
    assert loader.sampler is inner.sampler


def test_a_wrong_strategy_is_refused_before_torch_is_looked_at() -> None:
    with pytest.raises(ConfigError, match="`parallel_strategy` is 'zero'"):
        train.torch.prepare_model(None, parallel_strategy="zero")  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["exception", "exit", "kill"])
def test_ranks_that_wait_in_a_collective_go_down_with_the_one_that_failed(storage: Path, how: str) -> None:
    def function(config: dict[str, Any]) -> None:
        import os
        import signal

        import torch
        import torch.distributed as distributed

        from carril import train

        if train.get_context().get_world_rank() == 1:
            if config["how"] == "exit":
                os._exit(5)
            if config["how"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("only here")
        distributed.all_reduce(torch.ones(2))

    with pytest.raises(WorkerGroupError) as raised:
        fit(function, storage, workers=3, train_loop_config={"how": how})
    first = {"exception": "ValueError: only here", "exit": "exit code 5", "kill": "SIGKILL"}[how]
    assert str(raised.value).startswith("rank 1 failed: ") and first in str(raised.value).splitlines()[0]
    (run,) = storage.iterdir()
    records = [line.split(" ", 1)[1] for line in (run / "journal" / "000000.log").read_text().splitlines()]
    times = {}
    for record in records:
        import json

        told = json.loads(record)
        failed = told["event"].startswith(("WorkerFailed: rank 1", "WorkerExited: rank 1"))
        times.setdefault("failed" if failed else told["event"], told["at"])
        times["ended"] = told["at"]
    assert times["ended"] - times["failed"] < 3, "without waiting for the time-out of Gloo, which is half an hour"
