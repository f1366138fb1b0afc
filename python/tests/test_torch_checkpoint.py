"""TorchCheckpoint: a model or its state goes in and comes out, whatever it was wrapped in and however it was reported."""

from pathlib import Path
from typing import Any

import pytest
import torch
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401
from runs import fit

from carril._internal.command import find_command
from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError
from carril.train import Checkpoint
from carril.train.torch import TorchCheckpoint


def _model(value: float = 0.0) -> torch.nn.Linear:
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def _weights(model: torch.nn.Module) -> list[float]:
    return [float(number) for parameter in model.parameters() for number in parameter.detach().flatten()]


def test_a_model_comes_back_whole_with_its_preprocessor() -> None:
    checkpoint = TorchCheckpoint.from_model(_model(2.0), preprocessor={"mean": 1})
    model = checkpoint.get_model()
    assert isinstance(model, torch.nn.Linear) and _weights(model) == [2.0] * 3
    assert checkpoint.get_preprocessor() == {"mean": 1} and isinstance(checkpoint, Checkpoint)
    other = _model()
    assert checkpoint.get_model(other) is other and _weights(other) == [2.0] * 3


def test_a_state_is_loaded_into_the_model_that_is_given() -> None:
    checkpoint = TorchCheckpoint.from_state_dict(_model(3.0).state_dict())
    assert _weights(checkpoint.get_model(_model())) == [3.0] * 3
    with pytest.raises(ConfigError, match="has the state of a model and not the model itself\nhint: give a model to"):
        checkpoint.get_model()
    with pytest.raises(RuntimeError, match="size mismatch"):
        checkpoint.get_model(torch.nn.Linear(5, 1))


def test_the_names_of_a_wrapped_model_are_understood_in_both_directions() -> None:
    wrapped = torch.nn.DataParallel(_model(4.0))
    assert set(wrapped.state_dict()) == {"module.weight", "module.bias"}
    of_wrapped = TorchCheckpoint.from_state_dict(wrapped.state_dict())
    assert _weights(of_wrapped.get_model(_model())) == [4.0] * 3
    assert type(TorchCheckpoint.from_model(wrapped).get_model()) is torch.nn.Linear
    plain = TorchCheckpoint.from_state_dict(_model(5.0).state_dict())
    assert _weights(plain.get_model(torch.nn.DataParallel(_model()))) == [5.0] * 3


def test_a_part_that_is_really_called_module_keeps_its_name() -> None:
    class Holder(torch.nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.module = _model(value)

    checkpoint = TorchCheckpoint.from_state_dict(Holder(6.0).state_dict())
    assert _weights(checkpoint.get_model(Holder(0.0))) == [6.0] * 3


def test_a_dict_with_a_model_in_it_is_read_as_in_older_scripts() -> None:
    of_state = TorchCheckpoint.from_dict({"model": _model(7.0).state_dict(), "epoch": 1})
    assert _weights(of_state.get_model(_model())) == [7.0] * 3 and of_state.to_dict()["epoch"] == 1
    whole = TorchCheckpoint.from_checkpoint(Checkpoint.from_dict({"model": _model(8.0)}))
    assert _weights(whole.get_model()) == [8.0] * 3


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigTypeError, match=r"`model` is an OrderedDict: it must be a `torch.nn.Module`\nhint: .*state"
    ):
        TorchCheckpoint.from_model(_model().state_dict())  # type: ignore[arg-type]
    with pytest.raises(ConfigTypeError, match=r"`state_dict` is a Linear: it must be a dict\nhint: .*from_model"):
        TorchCheckpoint.from_state_dict(_model())  # type: ignore[arg-type]
    with pytest.raises(ConfigTypeError, match=r"`model` is a dict: it must be a `torch.nn.Module`"):
        TorchCheckpoint.from_model(_model()).get_model({})  # type: ignore[arg-type]
    (tmp_path / "weights.bin").write_text("x")
    with pytest.raises(CheckpointError, match=r"holds no model: it has no `model.pt`, but weights.bin\nhint: "):
        TorchCheckpoint(tmp_path).get_model()


@pytest.mark.usefixtures("head")
def test_a_reported_one_is_read_back_by_its_path_and_from_the_result(storage: Path) -> None:
    def function() -> None:
        import torch

        from carril import train
        from carril.train.torch import TorchCheckpoint

        model = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(model.weight, 9.0)
        train.report({}, checkpoint=TorchCheckpoint.from_state_dict(model.state_dict()))

    result = fit(function, storage, workers=1)
    assert result.checkpoint is not None and type(result.checkpoint) is Checkpoint
    for checkpoint in (TorchCheckpoint(result.checkpoint.path), TorchCheckpoint.from_checkpoint(result.checkpoint)):
        model: Any = checkpoint.get_model(_model())
        assert model.weight.tolist() == [[9.0, 9.0]]


SCRIPT = """
    import torch
    from ray.train.torch import TorchCheckpoint
    from ray.train.torch.torch_checkpoint import TorchCheckpoint as same
    {imports}

    model = torch.nn.Linear(1, 1)
    checkpoint = TorchCheckpoint.from_model(model)
    print(f"is_same={{TorchCheckpoint is same}}")
    print(f"is_one={{isinstance(checkpoint, Checkpoint)}}")
    print(f"kind={{type(checkpoint.get_model()).__name__}}")
"""


@pytest.mark.parametrize("imports", ["from ray.air import Checkpoint", "from ray.train import Checkpoint"])
def test_scripts_of_both_generations_find_it(scripts: Scripts, imports: str) -> None:
    output = scripts.run(SCRIPT.format(imports=imports), before=(find_command(), "as-ray", "--"))
    assert values(output) == {"is_same": "True", "is_one": "True", "kind": "Linear"}
