"""What workers have of torchrun: its environment, so that its scripts run unchanged, and a group that forms.

The runs with torch are few and shared, because an import of torch takes seconds.
"""

import json
import re

import pytest
from driver_scripts import Scripts, scripts_fixture, shared_scripts_fixture  # noqa: F401

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


def lines(output: str, word: str) -> list[dict]:
    return [json.loads(text) for text in re.findall(rf"{word} (\{{.*\}})", output)]


def test_every_worker_has_torchruns_variables(scripts: Scripts) -> None:
    output = scripts.run(
        f"""
        import json, os
        import carril
        from carril import train

        def loop():
            print("variables " + json.dumps({{name: os.environ.get(name) for name in {NAMES!r}}}), flush=True)

        carril.init(num_cpus=3)
        train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=3)).fit()
        """,
        # As where the driver itself was started by torchrun: its own place is not the workers'.
        RANK="7",
        WORLD_SIZE="9",
        MASTER_ADDR="10.0.0.1",
        MASTER_PORT="1",
    )
    found = sorted(lines(output, "variables"), key=lambda one: int(one["RANK"]))
    assert [(one["RANK"], one["LOCAL_RANK"]) for one in found] == [("0", "0"), ("1", "1"), ("2", "2")]
    (port,) = {one["MASTER_PORT"] for one in found}
    assert 1024 <= int(port) <= 65535
    for one in found:
        assert (one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"], one["NODE_RANK"]) == ("3", "3", "0")
        assert one["MASTER_ADDR"] == "127.0.0.1"


TORCHRUN_SCRIPT = """
    import json, os, sys
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset

    class Squares(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.tensor(float(index * index))

    def main():
        dist.init_process_group("gloo")
        value = torch.ones(4) * (dist.get_rank() + 1)
        dist.all_reduce(value)
        batches = sum(float(batch.sum()) for batch in DataLoader(Squares(), batch_size=2, num_workers=2))
        print("script " + json.dumps({
            "rank": dist.get_rank(), "size": dist.get_world_size(), "sum": value.tolist(),
            "batches": batches, "argv": sys.argv, "name": __name__,
        }), flush=True)
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        main()
"""

LAUNCHER = """
    import runpy
    from carril import train

    def loop(config):
        runpy.run_path(config["script"], run_name="__main__")
        train.report({"done": 1})

    if __name__ == "__main__":
        for _ in range(2):
            result = train.DataParallelTrainer(
                loop,
                train_loop_config={"script": "torchrun_script.py"},
                scaling_config=train.ScalingConfig(num_workers=2),
                run_config=train.RunConfig(verbose=2),
            ).fit()
            print(f"done {result.metrics['done']}", flush=True)
"""


@pytest.fixture(name="launched", scope="module")
def launched_fixture(shared_scripts: Scripts) -> str:
    shared_scripts.write(TORCHRUN_SCRIPT, "torchrun_script.py")
    return shared_scripts.run(LAUNCHER)


def test_a_script_for_torchrun_runs_unchanged_with_its_own_group(launched: str) -> None:
    # Twice, in one driver: the second run meets at a place of its own.
    assert launched.count("done 1") == 2
    found = lines(launched, "script")
    assert sorted(one["rank"] for one in found) == [0, 0, 1, 1]
    assert all(one["size"] == 2 and one["sum"] == [3.0] * 4 for one in found)


def test_a_data_loader_with_processes_works_in_such_a_script(launched: str) -> None:
    assert {one["batches"] for one in lines(launched, "script")} == {140.0}


TRAINER = """
    import json, os, sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    from carril import train
    from carril.train.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model

    class Numbers(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return torch.tensor([float(index)])

    def loop(config):
        assert dist.is_initialized()
        context = train.get_context()
        torch.manual_seed(context.get_world_rank())
        model = prepare_model(nn.Linear(1, 1))
        seen = []
        for batch in prepare_data_loader(DataLoader(Numbers(), batch_size=5, num_workers=2)):
            seen.extend(int(value) for value in batch)
            loss = model(batch).pow(2).mean()
            loss.backward()
        gathered = [None, None]
        dist.all_gather_object(gathered, [float(p) for p in model.parameters()])
        value = torch.tensor([2.0 ** context.get_world_rank()])
        dist.all_reduce(value)
        print("trained " + json.dumps({
            "rank": context.get_world_rank(), "group": dist.get_rank(), "backend": dist.get_backend(),
            "seen": sorted(seen), "same": gathered[0] == gathered[1], "sum": float(value),
            "device": str(get_device()), "threads": torch.get_num_threads(),
            "random": float(torch.rand(())),
        }), flush=True)
        train.report({"loss": loss})

    if __name__ == "__main__":
        scaling = train.ScalingConfig(num_workers=2)
        result = TorchTrainer(loop, train_loop_config={}, scaling_config=scaling, run_config=train.RunConfig(verbose=2)).fit()
        print(f"loss is a {type(result.metrics['loss']).__name__}")
"""


@pytest.fixture(name="trained", scope="module")
def trained_fixture(shared_scripts: Scripts) -> str:
    return shared_scripts.run(TRAINER)


def test_in_torch_trainer_the_group_is_there_already(trained: str) -> None:
    found = sorted(lines(trained, "trained"), key=lambda one: one["rank"])
    assert [(one["rank"], one["group"], one["backend"]) for one in found] == [(0, 0, "gloo"), (1, 1, "gloo")]
    assert all(one["sum"] == 3.0 and one["same"] for one in found)
    assert "loss is a float" in trained


def test_a_data_set_of_the_drivers_script_works_with_loader_processes_and_is_shared_out(trained: str) -> None:
    found = lines(trained, "trained")
    assert sorted(found[0]["seen"] + found[1]["seen"]) == list(range(40))


def test_workers_with_torch_are_forked_and_have_their_own_threads(trained: str) -> None:
    assert "started plainly" not in trained
    assert all(one["threads"] == 1 and one["device"] == "cpu" for one in lines(trained, "trained"))


def test_torch_that_only_the_function_imports_forms_a_group_too(scripts: Scripts) -> None:
    output = scripts.run("""
        from carril import train

        def loop():
            import torch
            import torch.distributed as dist

            dist.init_process_group("gloo")
            value = torch.tensor([1.0])
            dist.all_reduce(value)
            dist.destroy_process_group()
            return float(value)

        if __name__ == "__main__":
            import sys
            assert "torch" not in sys.modules
            scaling = train.ScalingConfig(num_workers=2)
            print(f"sum is {train.DataParallelTrainer(loop, scaling_config=scaling).fit().return_value}")
    """)
    assert "sum is 2.0" in output
