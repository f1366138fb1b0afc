"""The imperative form of older Ray scripts: start, run, save_checkpoint, load_checkpoint, shutdown.

What a whole script relies on (the caller's function as the default, the head that ends with the trainer, `as-ray`) is
tested with scripts; the rest in this process, on one head.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401
from runs import lines

import carril
from carril._internal.command import find_command
from carril.exceptions import CheckpointError, ConfigError, NotAvailableError
from carril.train import (
    Checkpoint,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    Trainer,
    WorkerGroupError,
)
from carril.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.usefixtures("head")


def trainer(storage: Path, workers: int = 2, **run: Any) -> Trainer:
    return Trainer(num_workers=workers, run_config=RunConfig(storage_path=storage, verbose=0, **run))


def ranks() -> Callable[..., Any]:
    def function(config: dict[str, Any]) -> Any:
        from carril import train

        rank = train.get_context().get_world_rank()
        return None if rank == config.get("silent") else (rank, config.get("a"))

    return function


def test_run_returns_what_every_rank_returned(storage: Path) -> None:
    one = trainer(storage, 4)
    assert one.start() is None
    assert one.run(ranks(), {"a": 1, "silent": 2}) == [(0, 1), (1, 1), None, (3, 1)]
    assert one.run(ranks()) == [(0, None), (1, None), (2, None), (3, None)]
    one.shutdown()


def test_run_has_the_function_and_the_config_that_the_trainer_was_made_with(storage: Path) -> None:
    run_config = {"storage_path": storage, "verbose": 0}
    scaling: list[Any] = [ScalingConfig(num_workers=2), {"num_workers": 2}]
    for cls in (Trainer, DataParallelTrainer):
        for scaling_config in scaling:
            made = cls(ranks(), train_loop_config={"a": 5}, scaling_config=scaling_config, run_config=run_config)
            assert made.run() == [(0, 5), (1, 5)]
            assert made.run(lambda config: config["a"]) == [5, 5], "another function, the same config"
            assert made.run(config={"a": 6}) == [(0, 6), (1, 6)]
            assert made.fit().return_value == (0, 5), "a run before leaves the trainer as it was"


def test_without_any_function_the_error_says_where_one_can_be(storage: Path) -> None:
    for cls in (Trainer, DataParallelTrainer, TorchTrainer):
        made = cls(run_config=RunConfig(storage_path=storage))
        for call, name in ((made.run, "run(train_func)"), (made.fit, "fit()")):
            with pytest.raises(ConfigError) as caught:
                call()
            assert str(caught.value) == (
                f"`{name}` has no function to run\n"
                "hint: give one as `train_loop_per_worker=…`, or define a function of that name beside the call"
            )
    assert list(storage.iterdir()) == []


def test_the_runs_of_a_named_trainer_are_numbered_and_report_as_any_run(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        from carril import train

        train.report({"step": config["step"]}, checkpoint=train.Checkpoint.from_dict({"step": config["step"]}))

    one = trainer(storage, name="named")
    for step in (1, 2, 3):
        one.run(function, {"step": step})
    assert sorted(path.name for path in storage.iterdir()) == ["named", "named_2", "named_3"]
    assert [row["step"] for row in lines(storage / "named_2" / "result.json")] == [2]
    assert Result.from_path(storage / "named_3").metrics["step"] == 3  # type: ignore[index]


def _unreported(config: dict[str, Any]) -> None:
    from carril import train

    for step in range(3):
        train.Checkpoint.from_dict({"step": step, "rank": train.get_context().get_world_rank()})


def _reported_then_made(config: dict[str, Any]) -> None:
    from carril import train

    train.report({}, checkpoint=train.Checkpoint.from_dict({"step": 1, "rank": 0}))
    train.Checkpoint.from_dict({"step": 2, "rank": train.get_context().get_world_rank()})


def _made_then_reported(config: dict[str, Any]) -> None:
    from carril import train

    early = train.Checkpoint.from_dict({"step": 2, "rank": 0})
    train.Checkpoint.from_dict({"step": 9, "rank": 9})
    train.report({}, checkpoint=early)


def _made_by_keywords(config: dict[str, Any]) -> None:
    from carril import train

    train.save_checkpoint(step=2, rank=train.get_context().get_world_rank())


def _made_and_returned(config: dict[str, Any]) -> Any:
    from carril import train

    return train.Checkpoint.from_dict({"step": 2, "rank": train.get_context().get_world_rank()})


def _made_and_looked_at(config: dict[str, Any]) -> None:
    from carril import train

    if train.get_context().get_world_rank() == 0:
        train.report({}, checkpoint=train.Checkpoint.from_dict({"step": 1, "rank": 0}))
        train.Checkpoint.from_bytes(train.Checkpoint.from_dict({"step": 2, "rank": 0}).to_bytes())
        assert train.get_checkpoint().to_dict()["step"] == 1
    else:
        train.report({})


@pytest.mark.parametrize(
    "function",
    [_unreported, _reported_then_made, _made_then_reported, _made_by_keywords, _made_and_returned, _made_and_looked_at],
)
def test_save_checkpoint_is_the_last_that_rank_0_made_reported_or_not(
    storage: Path, function: Callable[..., Any]
) -> None:
    one = trainer(storage)
    assert one.save_checkpoint() is None
    one.run(by_value(function))
    checkpoint = one.save_checkpoint()
    assert checkpoint is not None and checkpoint.to_dict() == {"step": 2, "rank": 0}
    (run,) = storage.iterdir()
    name = "checkpoint_000000" if function is _made_then_reported else "last_checkpoint"
    assert checkpoint.path == str(run / name), "it is kept with the run's files, once"
    assert list(storage.rglob(".staging/temporary/*")) == []


def by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one that travels by value, as those of a script do."""
    import types

    return types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)


def test_a_run_without_a_checkpoint_leaves_the_one_before(storage: Path) -> None:
    one = trainer(storage)
    one.run(by_value(_unreported))
    one.run(lambda: None)
    assert one.save_checkpoint().to_dict()["step"] == 2  # type: ignore[union-attr]


def test_a_directory_of_the_users_is_copied_and_stays(storage: Path, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        import os

        from carril import train

        if train.get_context().get_world_rank() == 0:
            os.makedirs(config["place"] + "/deep")
            with open(config["place"] + "/deep/weights.bin", "wb") as file:
                file.write(b"w" * 50_000_000)
            train.Checkpoint.from_directory(config["place"])

    one = trainer(storage, name="copied")
    one.run(function, {"place": str(tmp_path / "mine")})
    checkpoint = one.save_checkpoint()
    assert checkpoint is not None and checkpoint.path == str(storage / "copied" / "last_checkpoint")
    kept, own = Path(checkpoint.path, "deep", "weights.bin"), tmp_path / "mine" / "deep" / "weights.bin"
    assert kept.read_bytes() == own.read_bytes() and kept.stat().st_ino != own.stat().st_ino
    assert Result.from_path(storage / "copied").best_checkpoints == [], "it was not reported"


def test_a_directory_that_is_gone_at_the_end_is_told(storage: Path) -> None:
    def function() -> None:
        import tempfile

        from carril import train

        train.report({}, checkpoint=train.Checkpoint.from_dict({"step": 1}))
        with tempfile.TemporaryDirectory() as place:
            train.Checkpoint.from_directory(place)

    one = trainer(storage, 1, name="gone")
    one.run(function)
    assert one.save_checkpoint().to_dict() == {"step": 1}  # type: ignore[union-attr]
    (output,) = (storage / "gone" / "ranks").glob("rank_0*.log")
    assert re.search(r"warning: the last checkpoint's directory `\S+` is gone", output.read_text())


def begins_with() -> Callable[..., Any]:
    def function() -> Any:
        from carril import train

        checkpoint = train.get_checkpoint()
        loaded = train.load_checkpoint()
        return loaded if checkpoint is not None and checkpoint.to_dict() == loaded else checkpoint

    return function


def test_load_checkpoint_is_what_the_next_runs_begin_from(storage: Path, tmp_path: Path) -> None:
    one = trainer(storage)
    assert one.run(begins_with()) == [None, None]
    one.run(by_value(_unreported))
    one.load_checkpoint(one.save_checkpoint())
    assert one.run(begins_with()) == [{"step": 2, "rank": 0}] * 2
    assert one.run(begins_with()) == [{"step": 2, "rank": 0}] * 2
    one.load_checkpoint({"a": 1})
    assert one.run(begins_with()) == [{"a": 1}] * 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights.bin").write_bytes(b"w")
    one.load_checkpoint(tmp_path / "mine")
    assert one.run(begins_with()) == [{"weights.bin": b"w"}] * 2
    assert one.save_checkpoint().to_dict() == {"step": 2, "rank": 0}, "to open one is not to make one"  # type: ignore[union-attr]
    one.load_checkpoint(None)
    assert one.run(begins_with()) == [None, None]


def test_a_runs_own_checkpoint_goes_before_the_loaded_one(storage: Path) -> None:
    def function() -> Any:
        from carril import train

        train.report({}, checkpoint=train.Checkpoint.from_dict({"of": "the run"}))
        return train.load_checkpoint()

    one = trainer(storage)
    one.load_checkpoint({"of": "before"})
    assert one.run(function) == [{"of": "the run"}] * 2


def test_a_checkpoint_that_is_none_is_refused_when_it_is_loaded(storage: Path) -> None:
    one = trainer(storage)
    with pytest.raises(CheckpointError, match="the checkpoint's directory `/no/such` does not exist"):
        one.load_checkpoint("/no/such")
    with pytest.raises(TypeError, match="`checkpoint` is an int: it must be a Checkpoint, a dict or a path"):
        one.load_checkpoint(3)  # type: ignore[arg-type]
    assert one.run(begins_with()) == [None, None]


def test_an_error_in_the_function_is_that_of_fit_and_what_was_reported_is_kept(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        train.report({}, checkpoint=train.Checkpoint.from_dict({"step": 1}))
        train.get_checkpoint()
        if rank == 1:
            raise ValueError("of the user", rank)
        train.collective.barrier()

    one = trainer(storage)
    with pytest.raises(WorkerGroupError, match="rank 1 failed: ValueError") as caught:
        one.run(function)
    assert caught.value.worker_failures[1].args == ("of the user", 1)
    assert one.save_checkpoint().to_dict() == {"step": 1}  # type: ignore[union-attr]
    assert one.run(ranks()) == [(0, None), (1, None)], "the trainer goes on"


def test_in_this_process_it_is_the_same(storage: Path, tmp_path: Path) -> None:
    one = Trainer(num_workers=0, run_config=RunConfig(storage_path=storage, verbose=0))
    one.start()
    assert one.run(ranks(), {"a": 1}) == [(0, 1)]
    one.run(_unreported)
    one.load_checkpoint(one.save_checkpoint())
    assert one.run(begins_with()) == [{"step": 2, "rank": 0}]
    place = tmp_path / "mine"
    place.mkdir()
    (place / "file").write_text("a")
    one.run(lambda: Checkpoint.from_directory(place) and None)
    kept = one.save_checkpoint()
    assert kept is not None and kept.path != str(place) and kept.to_dict() == {"file": b"a"}
    one.run(_made_then_reported)
    assert one.save_checkpoint().to_dict() == {"step": 2, "rank": 0}  # type: ignore[union-attr]
    one.shutdown()
    assert list(storage.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Trainer(backend="tensorflow"), "`backend='tensorflow'`: this framework is not built yet"),
        (lambda: Trainer(backend="xgboost"), "`backend='xgboost'`: this framework is not built yet"),
        (lambda: Trainer(backend="horovod"), "`backend='horovod'`: this framework is not built yet"),
        (
            lambda: Trainer(backend="torhc"),
            "`backend` is 'torhc': it must be one of 'torch', 'horovod', 'jax', 'lightgbm', 'tensorflow', 'xgboost'",
        ),
        (lambda: Trainer(backend=3), "`backend` is an int: it must be a name or a `BackendConfig`"),  # type: ignore[arg-type]
        (lambda: Trainer("torch"), "it must be a function\nhint: name the framework as `backend=…`"),  # type: ignore[arg-type]
        (lambda: Trainer(num_workers=-1), "`ScalingConfig.num_workers` is -1"),
        (
            lambda: Trainer(num_workers=2, scaling_config={"num_workers": 2}),
            "`Trainer` has `scaling_config` and `num_workers`",
        ),
        (lambda: Trainer().run(3), "`train_func` is an int: it must be a function"),  # type: ignore[arg-type]
        (lambda: Trainer().run(len, 3), "`config` is an int: it must be a dict"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_one_clear_error(make: Callable[[], Any], text: str) -> None:
    kind = NotAvailableError if "not built" in text else ConfigError
    with pytest.raises(kind, match=re.escape(text)):
        make()


def test_the_backend_sets_torch_up_by_name_and_by_config() -> None:
    assert Trainer(backend="torch", num_workers=4).backend_config == TorchConfig()
    assert Trainer(backend=TorchConfig(backend="gloo")).backend_config == TorchConfig(backend="gloo")
    made = Trainer(num_workers=4, use_gpu=False, resources_per_worker={"CPU": 0.5})
    assert made.backend_config is None and made.scaling_config.total_resources == {"CPU": 2.0}


def test_save_checkpoint_in_a_function_of_fit_says_what_to_do(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.save_checkpoint(a=1)

    text = "`save_checkpoint()` is for functions that `Trainer.run()` runs"
    with pytest.raises(WorkerGroupError, match=re.escape(text)):
        DataParallelTrainer(function, run_config=RunConfig(storage_path=storage, verbose=0)).fit()


def test_a_head_that_was_there_before_stays(storage: Path) -> None:
    one = trainer(storage)
    one.run(ranks())
    one.shutdown()
    one.shutdown()
    assert carril.is_initialized()
    assert one.run(ranks()) == [(0, None), (1, None)], "and the trainer can be used again"


SCRIPT = """
    import os, time
    import torch
    import {ray}
    from {ray} import train
    from {ray}.train import Trainer
    from {checkpoint} import Checkpoint

    def train_loop_per_worker(config):
        rank = train.get_context().get_world_rank()
        checkpoint = train.get_checkpoint()
        step = checkpoint.to_dict()["step"] if checkpoint else 0
        for step in range(step, step + config.get("steps", 2)):
            total = torch.tensor([float(rank + 1)])
            torch.distributed.all_reduce(total)
            Checkpoint.from_dict({{"step": step + 1, "rank": rank, "total": total.item()}})
        return rank, step + 1

    def held():
        places = (f"/proc/self/fd/{{name}}" for name in os.listdir("/proc/self/fd"))
        sockets = {{os.readlink(place) for place in places if os.path.exists(place)}}
        children = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
        return {{name for name in sockets if name.startswith("socket:")}} | set(children)

    if __name__ == "__main__":
        # The runtime of the process is made once, and has a pair of sockets of its own.
        {ray}.init()
        {ray}.shutdown()
        at_first = held()
        trainer = Trainer(backend="torch", num_workers=2, use_gpu=False)
        other = Trainer(num_workers=1)
        trainer.start()
        other.start()
        print(f"before={{{ray}.is_initialized()}}")
        print(f"first={{trainer.run()}}")
        checkpoint = trainer.save_checkpoint()
        print(f"checkpoint={{checkpoint.to_dict()}}")
        trainer.load_checkpoint(checkpoint)
        print(f"second={{trainer.run(train_loop_per_worker, dict(steps=3))}}")
        trainer.shutdown()
        print(f"shared={{{ray}.is_initialized()}}")
        other.shutdown()
        print(f"after={{{ray}.is_initialized()}}")
        # A connection is closed in the background.
        deadline = time.monotonic() + 15
        while held() - at_first and time.monotonic() < deadline:
            time.sleep(0.01)
        print(f"held={{sorted(held() - at_first)}}")
"""


@pytest.mark.parametrize("name", ["carril", "ray"])
def test_a_whole_script_runs_and_its_head_ends_with_the_last_trainer(scripts: Scripts, name: str) -> None:
    before = (find_command(), "as-ray", "--") if name == "ray" else ()
    checkpoint = "ray.air" if name == "ray" else "carril.train"
    output = scripts.run(SCRIPT.format(ray=name, checkpoint=checkpoint), before=before)
    found = values(output)
    assert found["first"] == "[(0, 2), (1, 2)]"
    assert found["checkpoint"] == "{'step': 2, 'rank': 0, 'total': 3.0}"
    assert found["second"] == "[(0, 5), (1, 5)]"
    assert [found[when] for when in ("before", "shared", "after")] == ["True", "True", "False"]
    assert found["held"] == "[]", "no socket and no child that was not there before the trainers"
    results = scripts.directory / ("ray_results" if name == "ray" else "carril_results")
    assert len(os.listdir(results)) == 2
