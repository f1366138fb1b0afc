"""Torch's compiler is imported when somebody compiles, and everything is then as if it had been there from the start."""

import subprocess
import sys
import textwrap

import pytest
import torch
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401

from carril._internal import torch_dynamo

# A model, its optimizer and one step: what torch imports its compiler for.
STEP = """
    import os, sys, torch, torch.distributed as distributed
    from carril._internal import torch_dynamo

    # A version that nobody has read may ask more questions: it must come out right all the same.
    known = torch.__version__.startswith(torch_dynamo._KNOWN)
    torch_dynamo._KNOWN = (torch.__version__,)

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")

    def stands_in():
        return type(sys.modules.get("torch._dynamo")).__name__ == "_StandIn"

    def step():
        store = distributed.HashStore()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        distributed.destroy_process_group()
        return [parameter.tolist() for parameter in model.parameters()], optimizer.state_dict(), model, optimizer
"""


def run(source: str) -> str:
    script = textwrap.dedent(STEP) + textwrap.dedent(source)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_steps_need_no_compiler_and_come_out_the_same() -> None:
    source = """
        import json
        if {stands}:
            assert torch_dynamo.stand_in() and not torch_dynamo.stand_in()
        weights, state, *_ = step()
        assert stands_in() is {stands} or not known
        print(json.dumps([weights, str(state)]))
    """
    assert run(source.format(stands=True)) == run(source.format(stands=False)) != ""


def test_whoever_compiles_has_the_real_one_and_nothing_of_the_other_is_left() -> None:
    told = run("""
        assert torch_dynamo.stand_in()
        held = torch._dynamo
        _, _, model, optimizer = step()
        told = [fn for fn in held._told]
        assert not known or (told and all(hasattr(fn, "__dynamo_disable") for fn in told) and stands_in())
        compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
        x = torch.ones(3)
        assert torch.equal(compiled(x), x.sin() + 1)
        assert not stands_in() and torch._dynamo is sys.modules["torch._dynamo"] and held is not torch._dynamo
        assert not any(hasattr(fn, "__dynamo_disable") for fn in told), "DYN-1"
        assert held.utils is torch._dynamo.utils and held.config is torch._dynamo.config
        # The optimizer's own functions are again what torch says they are.
        optimizer.zero_grad()
        model.module(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        print("fine")
    """)
    assert told == "fine"


@pytest.mark.parametrize(
    "question",
    [
        "import torch._dynamo.config as real; real.optimize_ddp",
        "from torch._dynamo import optimize",
        "torch._dynamo.utils.counters",
        "torch._dynamo.trace_rules.lookup",
        "torch.compiler.reset()",
        "torch.compiler.disable(print)",
        "import importlib; importlib.import_module('torch._dynamo.eval_frame')",
    ],
)
def test_any_other_question_is_answered_by_the_real_one(question: str) -> None:
    assert (
        run(f"""
        assert torch_dynamo.stand_in()
        hasattr(torch._dynamo, "__wrapped__")
        assert stands_in(), "whoever looks through all modules does not import it"
        {question}
        assert not stands_in()
        print("fine")
    """)
        == "fine"
    )


def test_a_version_that_is_not_known_has_the_real_one() -> None:
    assert (
        run("""
        torch.__version__ = "99.0"
        assert not torch_dynamo.stand_in() and "torch._dynamo" not in sys.modules
        print("fine")
    """)
        == "fine"
    )


SCRIPT = """
    import sys
    import torch
    from carril.train import ScalingConfig
    from carril.train.torch import TorchTrainer, prepare_model

    def kind():
        return type(sys.modules.get("torch._dyn" + "amo")).__name__

    def loop():
        model = prepare_model(torch.nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        before = kind()
        faster = getattr(torch, "comp" + "ile")(model, backend="eager")
        faster(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        return before, kind()

    print("kinds=%s, %s" % TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit().return_value)
"""


@pytest.mark.parametrize(("comment", "before"), [("", "_StandIn"), ("    # torch.compile\n", "module")])
def test_in_a_worker_it_stands_in_unless_the_script_compiles(scripts: Scripts, comment: str, before: str) -> None:
    if not torch.__version__.startswith(torch_dynamo._KNOWN):
        before = "module"
    assert values(scripts.run(comment + SCRIPT))["kinds"] == f"{before}, module"
