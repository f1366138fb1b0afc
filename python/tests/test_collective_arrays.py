"""Collectives on numpy arrays and tensors, over memory that the workers share, and DDP's gradients through it."""

import re
from pathlib import Path
from typing import Any

import pytest
from runs import NO_RESTART, fit

from carril.exceptions import ConfigError
from carril.train import RunConfig, ScalingConfig, TrainingFailedError
from carril.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.usefixtures("head")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_arrays_of_numpy(storage: Path, workers: int) -> None:
    def function() -> None:
        import numpy

        from carril import train
        from carril.train import collective

        context = train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
        ranks = range(world)
        # Odd, more than one chunk, and of several dimensions.
        for kind in ("float32", "float64", "int64"):
            own = [(numpy.arange(60_003).reshape(3, 20_001) * (r + 1)).astype(kind) for r in ranks]
            given = own[rank].copy()
            for op, expected in (("sum", sum(own)), ("max", own[-1])):
                result = collective.all_reduce(given, op)
                assert result.dtype == kind and numpy.array_equal(result, expected), (kind, op)
            assert numpy.array_equal(given, own[rank]), "what was given stays as it is"
            assert numpy.array_equal(collective.broadcast(given, src=world - 1), own[-1])
            assert numpy.array_equal(collective.all_gather(given), numpy.stack(own))
            # A view that is not contiguous.
            assert numpy.array_equal(collective.all_reduce(given.T), sum(own).T)
            assert numpy.array_equal(collective.all_gather(given[:, ::2]), numpy.stack(own)[:, :, ::2])
            whole = [numpy.arange(world * 4).reshape(world * 2, 2).astype(kind) + r for r in ranks]
            part = collective.reduce_scatter(whole[rank])
            assert numpy.array_equal(part, sum(whole)[rank * 2 : rank * 2 + 2])
        same = collective.all_reduce(given := numpy.ones(5), out=given)
        assert same is given and given.tolist() == [world] * 5
        assert collective.all_reduce(numpy.full(3, rank, "float64"), "mean").tolist() == [sum(ranks) / world] * 3
        assert collective.all_reduce(numpy.float64(2)).item() == 2 * world
        assert collective.all_reduce(numpy.empty(0)).shape == (0,)

    fit(function, storage, workers=workers)


def test_tensors(storage: Path) -> None:
    def function() -> None:
        import torch

        from carril import train
        from carril.train import collective

        rank = train.get_context().get_world_rank()
        both = [torch.arange(6.0).reshape(2, 3) + r for r in range(2)]
        own = both[rank].clone().requires_grad_()
        result = collective.all_reduce(own)
        assert isinstance(result, torch.Tensor) and torch.equal(result, both[0] + both[1])
        assert torch.equal(own, both[rank]) and not result.requires_grad
        assert torch.equal(collective.all_reduce(own.t(), "max"), both[1].t())
        assert torch.equal(collective.all_gather(own), torch.stack(both))
        assert torch.equal(collective.broadcast(own, src=1), both[1])
        assert torch.equal(
            collective.reduce_scatter(both[rank].double()), (both[0] + both[1])[rank : rank + 1].double()
        )
        target = torch.zeros(2, 3)
        assert collective.all_reduce(both[rank], out=target) is target and torch.equal(target, result)
        assert collective.all_reduce(torch.tensor(3)).item() == 6

    fit(function, storage, workers=2)


def test_bad_input_is_refused_before_anybody_waits(storage: Path) -> None:
    def function() -> list[str]:
        import numpy

        from carril.exceptions import ConfigError
        from carril.train import collective

        def refused(call: Any) -> str:
            try:
                call()
            except ConfigError as error:
                return str(error)
            raise AssertionError("it was taken")

        one = numpy.ones(3)
        told = [
            refused(lambda: collective.all_reduce([1.0])),
            refused(lambda: collective.all_reduce(one.astype("float16"))),
            refused(lambda: collective.all_reduce(one, "product")),
            refused(lambda: collective.all_reduce(numpy.ones(3, "int64"), "mean")),
            refused(lambda: collective.all_reduce(one, out=numpy.ones(4))),
            refused(lambda: collective.all_reduce(one, out=numpy.ones(6)[::2])),
            refused(lambda: collective.reduce_scatter(one)),
            refused(lambda: collective.broadcast(one, src=2)),
        ]
        # The ranks are still together.
        assert collective.all_reduce(one).tolist() == [2, 2, 2]
        return told

    assert fit(function, storage, workers=2).return_value == [
        "`all_reduce()` takes a numpy array or a tensor, not a list",
        "`all_reduce()` takes values of float32, float64, int64, not of float16",
        "`op` is 'product': it must be 'sum', 'mean' or 'max'",
        "integers have no mean: use the sum, or give floats to all_reduce",
        "`out` of `all_reduce()` must be of the kind, the type and the shape of the values",
        "`out` of `all_reduce()` must be contiguous and writable",
        "`reduce_scatter()` divides the first dimension among 2 ranks, and the shape is (3,)",
        "rank 2 is not in a group of 2",
    ]


def test_ranks_that_disagree_are_named(storage: Path) -> None:
    def function() -> None:
        import numpy

        from carril import train
        from carril.train import collective

        collective.all_reduce(numpy.ones(2 + train.get_context().get_world_rank()))

    with pytest.raises(TrainingFailedError) as caught:
        fit(function, storage, workers=2)
    wanted = "rank 0 asked for all_reduce (sum) of 2 f64; rank 1 asked for all_reduce (sum) of 3 f64"
    assert wanted in str(caught.value) and "hint: every rank must call the same collectives" in str(caught.value)


def test_a_rank_that_returned_is_named_to_those_who_wait(storage: Path) -> None:
    def function() -> str:
        import numpy

        from carril import train
        from carril.exceptions import CollectiveError
        from carril.train import collective

        collective.all_reduce(numpy.ones(2))
        if train.get_context().get_world_rank() == 1:
            return ""
        try:
            collective.all_reduce(numpy.ones(2))
        except CollectiveError as error:
            return f"{error.code}: {error}"
        return "it came to an end"

    told = fit(function, storage, workers=2).return_value
    assert re.match(r"collective-mismatch: rank 1 \(pid \d+\) left the group, and all_reduce waits for it", told), told


@pytest.mark.parametrize("end", ["signal", "exit", "exception"])
def test_the_first_cause_is_the_rank_that_died_and_not_those_who_waited_for_it(storage: Path, end: str) -> None:
    def function(config: dict[str, Any]) -> None:
        import os
        import signal

        import numpy

        from carril import train
        from carril.train import collective

        values = numpy.ones(100_000)
        for step in range(1000):
            collective.all_reduce(values, "max")
            if step == 20 and train.get_context().get_world_rank() == 1:
                if config["end"] == "exception":
                    raise ValueError("the first cause")
                if config["end"] == "exit":
                    os._exit(7)
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingFailedError) as caught:
        fit(function, storage, workers=3, config={"end": end}, failure_config=NO_RESTART)
    headline = str(caught.value).splitlines()[0]
    expected = {"signal": "SIGKILL", "exit": "7", "exception": "ValueError: the first cause"}[end]
    assert "rank 1 failed" in headline and expected in headline, str(caught.value)


def test_a_wait_has_a_deadline_that_says_who_is_missing(storage: Path) -> None:
    def function() -> str:
        import numpy

        from carril import train
        from carril.exceptions import CollectiveTimeoutError
        from carril.train import collective

        collective.all_reduce(numpy.ones(2))
        text = ""
        if train.get_context().get_world_rank() == 0:
            try:
                collective.all_gather(numpy.ones(2), timeout_s=0.05)
            except CollectiveTimeoutError as error:
                text = str(error)
        collective.barrier()
        return text

    told = fit(function, storage, workers=2).return_value
    assert re.match(r"all_gather waited 0.05 s for rank 1 \(pid \d+\)\nhint: `timeout_s` sets", told), told


def test_outside_a_training_function_there_is_no_group() -> None:
    import numpy

    from carril.train import collective

    with pytest.raises(RuntimeError, match=r"`all_reduce\(\)` was called outside a training function"):
        collective.all_reduce(numpy.ones(1))


@pytest.mark.parametrize("workers", [2, 3])
def test_gradients_through_shared_memory_are_those_of_gloo(storage: Path, workers: int) -> None:
    def function(config: dict[str, Any]) -> list[bytes]:
        import os
        import threading

        import torch

        from carril import train
        from carril.train.torch import prepare_model

        # What the machine has, or a core for each worker and one to spare.
        os.sched_getaffinity = lambda pid: set(range(config["cores"]))
        torch.manual_seed(0)
        layers = [torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 7)]
        # Small buckets, so that there are several.
        model = prepare_model(torch.nn.Sequential(*layers), parallel_strategy_kwargs={"bucket_cap_mb": 0.1})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(train.get_context().get_world_rank())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(16, 300)).square().mean().backward()
            optimizer.step()
        with open("/proc/self/maps") as maps:
            is_shared = "memfd:carril-collective" in maps.read()
        assert is_shared == (config["way"] == "shared_memory"), "the hook did it, or Gloo did"
        aside = any(thread.name.startswith("carril-gradients") for thread in threading.enumerate())
        assert aside == (is_shared and config["cores"] >= 2 * train.get_context().get_world_size())
        return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]

    def run(way: str, cores: int = workers) -> list[bytes]:
        trainer = TorchTrainer(
            function,
            train_loop_config={"way": way, "cores": cores},
            torch_config=TorchConfig(cpu_allreduce=way),
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage),
        )
        value: list[bytes] = trainer.fit().return_value
        return value

    ours, gloo = run("shared_memory"), run("gloo")
    assert ours == run("shared_memory", 2 * workers), "the same bits in every run, on a thread or not"
    if workers == 2:
        assert ours == gloo
    else:
        import numpy

        # Gloo adds three in another order.
        for one, other in zip(ours, gloo, strict=True):
            numpy.testing.assert_allclose(
                numpy.frombuffer(one, "f4"), numpy.frombuffer(other, "f4"), rtol=1e-4, atol=1e-6
            )


def test_a_rank_that_dies_in_the_backward_pass_is_the_first_cause(storage: Path) -> None:
    def function() -> None:
        import os
        import signal

        import torch

        from carril import train
        from carril.train.torch import prepare_model

        model = prepare_model(torch.nn.Linear(500, 500))
        for step in range(50):
            if step == 3 and train.get_context().get_world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(4, 500)).sum().backward()

    trainer = TorchTrainer(
        function,
        torch_config={"cpu_allreduce": "shared_memory"},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, failure_config=NO_RESTART),
    )
    with pytest.raises(TrainingFailedError) as caught:
        trainer.fit()
    headline = str(caught.value).splitlines()[0]
    assert "rank 1 failed" in headline and "SIGKILL" in headline, str(caught.value)


def test_an_unknown_way_for_gradients_is_refused() -> None:
    with pytest.raises(ConfigError, match="it must be 'gloo' or 'shared_memory'"):
        TorchConfig(cpu_allreduce="carrier pigeon")
