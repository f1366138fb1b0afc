"""The older helpers for mixed precision: `accelerate`, `prepare_optimizer`, `backward`.

The runs are in this process (`num_workers=0`) where the workers make no difference, and one is with two of them. There
is no GPU here: what a GPU adds, the scaling of the loss, is tested with torch's own scaler on the CPU.
"""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from carril import train
from carril.train import RunConfig, _session
from carril.train import torch as carril_torch
from carril.train.torch import TorchTrainer, accelerate, backward, prepare_model, prepare_optimizer
from carril.train.torch._amp import Precision, use


def here(function: Callable[[], Any]) -> Any:
    """What the function returns when it is run in this process."""
    return TorchTrainer(function, scaling_config={"num_workers": 0}).fit().return_value


class Model(torch.nn.Module):
    """Of the module, so that pickle finds it by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)
        self.seen: list[torch.dtype] = []

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(batch)
        self.seen.append(output.dtype)
        return output


def one_step(model: Model, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    loss = model(torch.ones(8, 4)).float().pow(2).mean()
    optimizer.zero_grad()
    backward(loss)
    optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def prepared_step() -> list[torch.Tensor]:
    model = prepare_model(Model())
    return one_step(model, prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)))


def plain_step() -> list[torch.Tensor]:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(8, 4)).pow(2).mean().backward()
    optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_without_accelerate_the_helpers_are_plain_torch() -> None:
    expected = plain_step()
    assert same(here(prepared_step), expected)

    def unaccelerated() -> Any:
        accelerate(amp=False)
        return prepared_step()

    assert same(here(unaccelerated), expected)


def test_on_a_cpu_a_prepared_model_computes_in_bfloat16_and_nothing_else_does() -> None:
    def function() -> Any:
        accelerate(amp=True)
        model, other = prepare_model(Model()), Model()
        other(torch.ones(1, 4))
        output = model(torch.ones(1, 4))
        outside = model.layer(torch.ones(1, 4)).dtype
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plain = type(optimizer).step
        assert prepare_optimizer(optimizer).step.__func__ is plain, "bfloat16 needs no scaling"
        return model.seen, other.seen, output.dtype, outside, {p.dtype for p in model.parameters()}

    half, full = torch.bfloat16, torch.float32
    assert here(function) == ([half], [full], half, full, {full})


def test_the_next_run_begins_without_it() -> None:
    here(lambda: accelerate(amp=True))
    assert same(here(prepared_step), plain_step())


def test_a_prepared_model_pickles_and_copies_as_what_it_was() -> None:
    def function() -> Any:
        accelerate(amp=True)
        model = prepare_model(Model())
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        return pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False), copy.deepcopy(model), model

    *copies, model = here(function)
    for made in copies:
        assert type(made) is Model and "forward" not in vars(made) and "__getstate__" not in vars(made)
        assert made(torch.ones(1, 4)).dtype is torch.float32
        assert same(list(made.state_dict().values()), list(model.state_dict().values()))
    assert model(torch.ones(1, 4)).dtype is torch.bfloat16, "the model itself stays prepared"


def scaled(initial: float = 2.0**10) -> torch.amp.GradScaler:
    """The precision of a GPU, on the CPU: returns the scaler."""
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_interval=1000)
    use(_session.current("test"), Precision("cpu", torch.bfloat16, scaler))
    return scaler


def test_the_loss_is_scaled_and_the_step_undoes_it() -> None:
    def function() -> Any:
        scaler = scaled()
        model = Model()
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        loss = model(torch.ones(8, 4)).pow(2).mean()
        backward(loss)
        gradient = model.layer.bias.grad.clone()
        optimizer.step()
        return gradient, [p.detach().clone() for p in model.parameters()], scaler.get_scale()

    gradient, parameters, scale = here(function)
    model = Model()
    model(torch.ones(8, 4)).pow(2).mean().backward()
    assert torch.allclose(gradient, model.layer.bias.grad * 1024) and scale == 1024.0
    for one, other in zip(parameters, plain_step(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_step_whose_gradients_overflowed_is_left_out_and_the_scale_comes_down() -> None:
    def function() -> Any:
        scaler = scaled()
        model = Model()
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        backward(model(torch.full((1, 4), 3e38)).sum())
        optimizer.step()
        return before, [p.detach().clone() for p in model.parameters()], scaler.get_scale()

    before, after, scale = here(function)
    assert same(before, after) and scale == 512.0


@pytest.mark.parametrize("first", ["scheduler", "prepare"])
def test_a_learning_rate_scheduler_works_with_a_prepared_optimizer(first: str) -> None:
    def function() -> Any:
        scaled()
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if first == "prepare":
            optimizer = prepare_optimizer(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        optimizer = prepare_optimizer(optimizer)
        for _ in range(2):
            one_step(model, optimizer)
            scheduler.step()
        assert prepare_optimizer(optimizer) is optimizer
        state = pickle.loads(pickle.dumps(optimizer.state_dict()))
        return scheduler.get_last_lr(), optimizer.param_groups[0]["lr"], state["param_groups"][0]["lr"]

    with pytest.MonkeyPatch.context() as patch:
        # A scheduler warns when it is stepped before the optimizer was: it must see the steps.
        patch.setattr("warnings.warn", lambda *arguments, **options: pytest.fail(str(arguments)))
        assert here(function) == ([0.025], 0.025, 0.025)


def test_it_is_for_one_call_at_the_beginning_of_a_training_function() -> None:
    for call in (accelerate, lambda: prepare_optimizer(None), lambda: backward(None)):  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="was called outside a training function"):
            call()

    def twice() -> None:
        accelerate(amp=True)
        accelerate(amp=True)

    with pytest.raises(RuntimeError, match="`accelerate\\(\\)` was called before in this run\nhint: call it once"):
        here(twice)
    with pytest.raises(TypeError, match="`amp` is 'yes': it must be True or False"):
        here(lambda: accelerate("yes"))  # type: ignore[arg-type]


@pytest.mark.usefixtures("head")
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
        train.report({"loss": losses[-1]})
        weights = [round(value, 6) for value in model.module.weight.flatten().tolist()]
        return type(model).__name__, str(output.dtype), weights, losses[0] > 10 * losses[-1]

    trainer = TorchTrainer(
        function,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, verbose=0),
    )
    first, second = trainer.run()
    assert first[:2] == ("DistributedDataParallel", "torch.bfloat16")
    assert first[2] == second[2] and first[3] and second[3]


def test_all_of_them_are_names_of_the_module() -> None:
    assert {"accelerate", "backward", "prepare_optimizer", "enable_reproducibility"} <= set(carril_torch.__all__)
