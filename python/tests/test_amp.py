"""The older helpers for mixed precision: `accelerate`, `prepare_optimizer`, `backward`.

Everything runs in workers, and torch is imported there alone: whatever this process has imported, every zygote of later
tests would import too. There is no GPU here: what one adds, the scaling of the loss, is tested with torch's own scaler
on the CPU.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from carril._internal import driver
from carril.exceptions import WorkerGroupError
from carril.train import DataParallelTrainer, RunConfig, ScalingConfig, Trainer
from carril.train import torch as carril_torch
from carril.train.torch import TorchTrainer, accelerate, backward, prepare_model, prepare_optimizer

pytestmark = pytest.mark.usefixtures("head", "torch_in_the_zygote")

# Plain torch, and the first step of a training on which the others are measured.
STEP = {"lr": 0.1, "momentum": 0.9}


@pytest.fixture(scope="module")
def torch_in_the_zygote(head: None) -> Iterator[None]:
    """Workers are forked with torch; its functions here travel by value, as those of a script do."""
    client = driver.ensure_client()
    client.prepare(sys.executable, driver.absolute_path(), ["torch"])
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def in_worker(storage: Path) -> Callable[[Callable[[], Any]], Any]:
    """Runs a function in one worker and returns what it returned."""
    trainer = Trainer(backend="torch", num_workers=1, run_config=RunConfig(storage_path=storage, verbose=0))
    return lambda function: trainer.run(function)[0]


def new_model() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 2))


def one_step(model: Any, optimizer: Any) -> list[float]:
    import torch

    loss = model(torch.ones(8, 4)).float().pow(2).mean()
    optimizer.zero_grad()
    backward(loss)
    optimizer.step()
    return numbers(model)


def numbers(model: Any) -> list[float]:
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()]


def prepared_step() -> list[float]:
    import torch

    model = prepare_model(new_model())
    return one_step(model, prepare_optimizer(torch.optim.SGD(model.parameters(), **STEP)))


def plain_step() -> list[float]:
    import torch

    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), **STEP)
    model(torch.ones(8, 4)).pow(2).mean().backward()
    optimizer.step()
    return numbers(model)


def scaled() -> Any:
    """The precision of a GPU, on the CPU: returns the scaler, which begins at 1024."""
    import torch

    from carril.train import _session
    from carril.train.torch._amp import Precision, use

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    use(_session.current("test"), Precision("cpu", torch.bfloat16, scaler))
    return scaler


def test_without_accelerate_the_helpers_are_plain_torch(in_worker: Callable[..., Any]) -> None:
    def unaccelerated() -> Any:
        accelerate(amp=False)
        return prepared_step()

    expected = in_worker(plain_step)
    assert len(expected) == 10 and in_worker(prepared_step) == expected == in_worker(unaccelerated)


def test_on_a_cpu_a_prepared_model_computes_in_bfloat16_and_nothing_else_does(in_worker: Callable[..., Any]) -> None:
    def function() -> Any:
        import torch

        accelerate(amp=True)
        model, other = prepare_model(new_model()), new_model()
        ones = torch.ones(1, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        # bfloat16 needs no scaling.
        assert prepare_optimizer(optimizer).step.__func__ is torch.optim.SGD.step
        dtypes = [model(ones).dtype, other(ones).dtype, model[0](ones).dtype, model[0].weight.dtype]
        return [str(dtype) for dtype in dtypes]

    assert in_worker(function) == ["torch.bfloat16", "torch.float32", "torch.float32", "torch.float32"]


def test_with_several_runs_in_one_process_it_is_for_one_of_them(in_worker: Callable[..., Any]) -> None:
    def function() -> Any:
        here = DataParallelTrainer(lambda: accelerate(amp=True), scaling_config={"num_workers": 0})
        here.fit()
        here.fit()
        return DataParallelTrainer(prepared_step, scaling_config={"num_workers": 0}).fit().return_value

    assert in_worker(function) == in_worker(plain_step)


def test_a_prepared_model_pickles_and_copies_as_what_it_was(in_worker: Callable[..., Any]) -> None:
    def function() -> None:
        import copy
        import io
        import pickle

        import torch

        accelerate(amp=True)
        model = prepare_model(new_model())
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        for made in (
            pickle.loads(pickle.dumps(model)),
            torch.load(buffer, weights_only=False),
            copy.deepcopy(model),
        ):
            assert type(made) is torch.nn.Sequential and not {"forward", "__getstate__"} & set(vars(made))
            assert made(torch.ones(1, 4)).dtype is torch.float32
            assert numbers(made) == numbers(model)
        # The model itself stays prepared.
        assert model(torch.ones(1, 4)).dtype is torch.bfloat16

    in_worker(function)


def test_the_loss_is_scaled_and_the_step_undoes_it(in_worker: Callable[..., Any]) -> None:
    def function() -> Any:
        import torch

        scaler = scaled()
        model, plain = new_model(), new_model()
        plain(torch.ones(8, 4)).pow(2).mean().backward()
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), **STEP))
        backward(model(torch.ones(8, 4)).pow(2).mean())
        ratio = (model[0].bias.grad / plain[0].bias.grad).tolist()
        optimizer.step()
        return ratio, numbers(model), scaler.get_scale()

    ratio, stepped, scale = in_worker(function)
    assert ratio == pytest.approx([1024.0, 1024.0]) and scale == 1024.0
    assert stepped == pytest.approx(in_worker(plain_step), abs=1e-6)


def test_a_step_whose_gradients_overflowed_is_left_out_and_the_scale_comes_down(in_worker: Callable[..., Any]) -> None:
    def function() -> Any:
        import torch

        scaler = scaled()
        model = new_model()
        before = numbers(model)
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        backward(model(torch.full((1, 4), 3e38)).sum())
        optimizer.step()
        return numbers(model) == before, scaler.get_scale()

    assert in_worker(function) == (True, 512.0)


@pytest.mark.parametrize("first", ["scheduler", "prepare"])
def test_a_learning_rate_scheduler_works_with_a_prepared_optimizer(in_worker: Callable[..., Any], first: str) -> None:
    def function() -> Any:
        import warnings

        import torch

        # A scheduler warns when it does not see the optimizer's steps.
        warnings.simplefilter("error")
        scaled()
        model = new_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if first == "prepare":
            optimizer = prepare_optimizer(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        optimizer = prepare_optimizer(optimizer)
        for _ in range(2):
            one_step(model, optimizer)
            scheduler.step()
        assert prepare_optimizer(optimizer) is optimizer
        return scheduler.get_last_lr(), optimizer.state_dict()["param_groups"][0]["lr"]

    assert in_worker(function) == ([0.025], 0.025)


def test_it_is_for_one_call_at_the_beginning_of_a_training_function(in_worker: Callable[..., Any]) -> None:
    for call in (accelerate, lambda: prepare_optimizer(None), lambda: backward(None)):  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="was called outside a training function"):
            call()

    def twice() -> None:
        accelerate(amp=True)
        accelerate(amp=True)

    with pytest.raises(WorkerGroupError, match=r"`accelerate\(\)` was called before in this run\nhint: call it once"):
        in_worker(twice)
    with pytest.raises(WorkerGroupError, match="`amp` is 'yes': it must be True or False"):
        in_worker(lambda: accelerate("yes"))  # type: ignore[arg-type]


def test_two_workers_train_in_mixed_precision_and_agree(storage: Path) -> None:
    def function() -> Any:
        import torch

        from carril import train

        train.torch.accelerate(amp=True)
        torch.manual_seed(train.get_context().get_world_rank())
        model = train.torch.prepare_model(torch.nn.Linear(4, 1))
        optimizer = train.torch.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.05))
        batch = torch.randn(64, 4)
        target = batch.sum(dim=1, keepdim=True)
        losses = []
        for _ in range(30):
            output = model(batch)
            loss = torch.nn.functional.mse_loss(output.float(), target)
            optimizer.zero_grad()
            train.torch.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        weights = [round(value, 6) for value in model.module.weight.flatten().tolist()]
        return type(model).__name__, str(output.dtype), weights, losses[0] > 10 * losses[-1]

    trainer = TorchTrainer(
        function, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=storage, verbose=0)
    )
    first, second = trainer.run()
    assert first[:2] == ("DistributedDataParallel", "torch.bfloat16")
    assert first[2] == second[2] and first[3] and second[3]


def test_all_of_them_are_names_of_the_module() -> None:
    assert {"accelerate", "backward", "prepare_optimizer", "enable_reproducibility"} <= set(carril_torch.__all__)
