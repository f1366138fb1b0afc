"""`Trainer.restore`: a run goes on from its directory alone, with everything that is not given as the run had it."""

import json
import os
import pickle
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import saves
from conftest import wait_until
from driver_scripts import Scripts, scripts_fixture  # noqa: F401
from runs import fit, trainer

from carril._native import blob_hash
from carril.exceptions import (
    ConfigError,
    ConfigTypeError,
    NotFoundError,
    RunExistsError,
    StorageError,
    VersionMismatchError,
)
from carril.train import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    Trainer,
    UserCallback,
    WorkerGroupError,
)

pytestmark = pytest.mark.usefixtures("head")

# As a user has it in a file. Its function fails until a file is there.
SCRIPT = """
    import os, sys
    from carril import train

    OFFSET = 100

    class Step:
        def __init__(self, number):
            self.number = number + OFFSET

    def loop(config):
        latest = train.get_checkpoint()
        begin = latest.to_dict()["step"] + 1 if latest else 0
        for step in range(begin, 4):
            made = train.Checkpoint.from_dict({"step": step})
            train.report({"step": step, "seen": Step(step).number}, checkpoint=made)
            if step == 1 and not os.path.exists(config["go"]):
                os._exit(3)
        return begin, train.get_context().get_world_size()

    if __name__ == "__main__":
        train.DataParallelTrainer(
            loop,
            train_loop_config={"go": sys.argv[2]},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="cut", storage_path=sys.argv[1]),
        ).fit()
"""
RESTORES = """
    import sys
    from carril import train

    assert train.DataParallelTrainer.can_restore(sys.argv[1])
    result = train.DataParallelTrainer.restore(sys.argv[1]).fit()
    print(f"returned={result.return_value}")
    print(f"seen={result.metrics['seen']}")
    print(f"path={result.path}")
"""


def fails(storage: Path, **run: Any) -> Path:
    """A run of three steps that has failed after its second; returns its directory."""
    with pytest.raises(WorkerGroupError):
        fit(saves(), storage, config={"steps": 3, "fail_at": 1}, name="cut", **run)
    return storage / "cut"


def refused(path: Any, error: type[Exception] = NotFoundError, **given: Any) -> str:
    """The text of what `restore` raises. What it raises without more arguments, `can_restore` says too."""
    with pytest.raises(error) as caught:
        DataParallelTrainer.restore(path, **given)
    if not given:
        assert DataParallelTrainer.can_restore(path) is False
    return str(caught.value)


def test_another_process_goes_on_with_the_function_of_a_script_that_is_gone(scripts: Scripts, tmp_path: Path) -> None:
    go, storage = tmp_path / "go", tmp_path / "runs"
    script = scripts.start(SCRIPT, str(storage), str(go))
    assert script.finish() != 0, script.output
    (scripts.directory / "script.py").unlink()
    go.touch()
    output = scripts.run(RESTORES, str(storage / "cut"))
    assert f"returned=(2, 2)\nseen=103\npath={storage}/cut" in output
    assert Result.from_path(storage / "cut").error is None


def test_what_is_not_given_is_what_the_run_had(storage: Path) -> None:
    failures, kept = FailureConfig(max_infrastructure_failures=7), CheckpointConfig(num_to_keep=2)
    config = {"steps": 3, "fail_at": 1}
    run = fails(storage, failure_config=failures, checkpoint_config=kept, metrics_reduce={"rank": "max"}, verbose=0)
    restored = DataParallelTrainer.restore(run)
    assert type(restored) is DataParallelTrainer
    assert restored.train_loop_config == config and restored.scaling_config == ScalingConfig(num_workers=2)
    expected = RunConfig(
        name="cut",
        storage_path=str(storage),
        failure_config=failures,
        checkpoint_config=kept,
        metrics_reduce={"rank": "max"},
        verbose=0,
        resume=True,
    )
    assert restored.run_config == expected
    with pytest.raises(WorkerGroupError):
        # The same again: it begins after the step that it has failed at, and there is no step 1 any more.
        DataParallelTrainer.restore(run, train_loop_config={"steps": 3, "fail_at": 2}).fit()
    assert DataParallelTrainer.restore(run).fit().return_value == 3


def test_what_is_given_is_taken(storage: Path) -> None:
    def other(config: dict[str, Any]) -> Any:
        from carril import train

        latest = train.get_checkpoint()
        assert latest is not None
        return config, train.get_context().get_world_size(), Path(latest.path).name

    run = fails(storage)
    given = DataParallelTrainer.restore(
        run, other, {"new": 1}, {"num_workers": 1}, run_config={"verbose": 0, "name": "cut"}
    )
    assert given.run_config.storage_path == str(storage) and given.run_config.verbose == 0
    assert given.fit().return_value == ({"new": 1}, 1, "checkpoint_000001")


@pytest.mark.parametrize("way", ["text", "path", "slash", "home", "relative", "uri"])
def test_a_path_may_be_written_in_any_way(storage: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fails(storage)
    monkeypatch.setenv("HOME", str(storage))
    monkeypatch.chdir(storage)
    ways: dict[str, Any] = {
        "text": str(run),
        "path": run,
        "slash": f"{run}/",
        "home": "~/cut",
        "relative": "cut",
        "uri": f"file://{run}",
    }
    assert DataParallelTrainer.can_restore(ways[way])
    restored = DataParallelTrainer.restore(ways[way])
    assert (restored.run_config.name, restored.run_config.storage_path) == ("cut", str(storage))


def test_a_run_that_was_moved_goes_on_where_it_is(storage: Path) -> None:
    moved = storage / "deeper" / "renamed"
    moved.parent.mkdir()
    fails(storage).rename(moved)
    result = DataParallelTrainer.restore(moved, train_loop_config={"steps": 3}).fit()
    assert (result.path, result.return_value) == (str(moved), 2)
    assert not (storage / "cut").exists()


def test_a_finished_run_goes_on_from_its_last_checkpoint(storage: Path) -> None:
    fit(saves(), storage, config={"steps": 2}, name="done")
    assert DataParallelTrainer.can_restore(storage / "done")
    result = DataParallelTrainer.restore(storage / "done").fit()
    assert result.return_value == 2, "there is nothing left to do"
    assert result.metrics is not None and result.metrics["step"] == 1, "its last report is still the last one"
    more = DataParallelTrainer.restore(storage / "done", train_loop_config={"steps": 4}).fit()
    assert more.return_value == 2 and [metrics["step"] for _, metrics in more.best_checkpoints] == [0, 1, 2, 3]


def test_a_live_run_is_refused_when_it_is_to_begin(storage: Path) -> None:
    def function(config: dict[str, Any]) -> str:
        import os
        import time

        from carril import train

        train.report({"a": 1})
        while not os.path.exists(config["go"]):
            time.sleep(0.005)
        return "went on"

    go, results = storage / "go", []
    first = trainer(function, storage, workers=1, config={"go": str(go)}, name="live")
    thread = threading.Thread(target=lambda: results.append(first.fit()))
    thread.start()
    try:
        reports = storage / "live" / "result.json"
        wait_until(lambda: reports.exists() and reports.stat().st_size, "the run has reported")
        restored = DataParallelTrainer.restore(storage / "live")
        with pytest.raises(RunExistsError, match=r"a run named `live` is live in .*: process \d+ on "):
            restored.fit()
    finally:
        go.touch()
        thread.join()
    assert results[0].return_value == "went on"


def test_a_path_that_is_no_run_is_told_with_what_it_is(storage: Path) -> None:
    run = fails(storage)
    (storage / "empty").mkdir()
    assert refused(storage / "none") == f"`{storage}/none` does not exist"
    assert refused(storage / "empty") == (
        f"`{storage}/empty` is not the directory of a run: it has no `run.json`\n"
        "hint: a run's directory is its `storage_path` and its name: see `Result.path`"
    )
    assert refused(run / "run.json").startswith(f"`{run}/run.json` is not the directory of a run")
    assert "hint: it holds the runs `cut`: give the path of one" in refused(storage)
    assert refused(run / "checkpoint_000001") == (
        f"`{run}/checkpoint_000001` is a checkpoint, not a run\n"
        f"hint: its run is `{run}`\n"
        "hint: for a new run that begins with it, give a trainer `resume_from_checkpoint=Checkpoint(path)`"
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (5, "`path` is an int: it must be a path"),
        (None, "`path` is a NoneType: it must be a path"),
        ("ftp://host/run", "there is no storage for `ftp://`"),
        (Path("s3://bucket/run"), "which was a URI before it became a Path"),
    ],
)
def test_what_is_no_path_is_an_error_of_both(path: Any, text: str) -> None:
    for call in (DataParallelTrainer.restore, DataParallelTrainer.can_restore):
        with pytest.raises(ConfigError) as caught:
            call(path)
        assert text in str(caught.value)


@pytest.mark.parametrize("name", ["trainer.pkl", "function.pkl"])
def test_a_file_that_is_missing_damaged_or_of_somebody_else_is_named(storage: Path, name: str) -> None:
    run = fails(storage)
    whole = (run / name).read_bytes()
    # One flipped bit is mostly another number in the config, which pickle takes without a word.
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 16
    for damaged in (whole[:-20], bytes(flipped)):
        (run / name).write_bytes(damaged)
        text = refused(run, StorageError)
        assert text.startswith(f"`{name}` of the run `{run}` is damaged: it is not what the run was started with")
    (run / name).unlink()
    text = refused(run)
    assert text.startswith(f"the run `{run}` has no `{name}`\nhint: make its trainer as before")
    (run / name).mkdir()
    text = refused(run, StorageError)
    assert text.startswith(f"`{run / name}` is damaged: it is a directory, not a file"), text
    (run / name).rmdir()
    # The same function again puts back what is missing.
    with pytest.raises(WorkerGroupError):
        fit(saves(), storage, config={"steps": 3, "fail_at": 2}, name="cut")
    assert DataParallelTrainer.can_restore(run)


@pytest.mark.parametrize("name", ["trainer.pkl", "function.pkl"])
def test_the_same_trainer_again_repairs_a_damaged_file(storage: Path, name: str) -> None:
    run = fails(storage)
    (run / name).write_bytes((run / name).read_bytes()[:-1])
    assert not DataParallelTrainer.can_restore(run)
    fit(saves(), storage, config=json.loads((run / "params.json").read_text()), name="cut")
    assert DataParallelTrainer.can_restore(run)


def test_a_trainer_of_a_later_version_is_refused(storage: Path) -> None:
    run = fails(storage)

    def keep(content: object) -> None:
        """As a Carril would have kept it."""
        data = pickle.dumps(content)
        (run / "trainer.pkl").write_bytes(data)
        record = json.loads((run / "run.json").read_text())
        record["kept"]["trainer.pkl"] = blob_hash(data)
        (run / "run.json").write_text(json.dumps(record))

    keep({**pickle.loads((run / "trainer.pkl").read_bytes()), "version": 99})
    assert "was kept by a newer Carril" in refused(run, VersionMismatchError)
    keep(["something", "else"])
    assert refused(run, ConfigError) == f"`trainer.pkl` of the run `{run}` is none of ours"


def test_a_torch_trainer_comes_back_with_its_backend(storage: Path) -> None:
    from carril.train.torch import TorchConfig, TorchTrainer

    def function() -> Any:
        import torch

        from carril import train

        if train.get_checkpoint() is None:
            given = train.Checkpoint.from_dict({}) if train.get_context().get_world_rank() == 0 else None
            train.report({}, checkpoint=given)
            raise RuntimeError("on purpose")
        return torch.distributed.get_world_size(), torch.distributed.get_backend()

    with pytest.raises(WorkerGroupError):
        TorchTrainer(
            function,
            torch_config=TorchConfig(timeout_s=77),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="torch", storage_path=storage),
        ).fit()
    restored = DataParallelTrainer.restore(storage / "torch")
    assert type(restored) is TorchTrainer and restored.backend_config == TorchConfig(timeout_s=77)
    given = TorchTrainer.restore(storage / "torch", torch_config={"backend": "gloo", "timeout_s": 5})
    assert given.backend_config == TorchConfig(backend="gloo", timeout_s=5)
    assert restored.fit().return_value == (2, "gloo")


def test_a_function_whose_module_is_gone_can_be_given_anew(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib
    import sys

    (tmp_path / "gone_soon.py").write_text(
        "from carril import train\ndef loop(config):\n    train.report({'a': 1})\n    raise ValueError\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WorkerGroupError):
        fit(importlib.import_module("gone_soon").loop, storage, config={"steps": 1}, name="cut")
    assert DataParallelTrainer.can_restore(storage / "cut")
    (tmp_path / "gone_soon.py").unlink()
    monkeypatch.delitem(sys.modules, "gone_soon")
    importlib.invalidate_caches()
    text = refused(storage / "cut", ConfigError)
    assert "`train_loop_per_worker` of the run cannot be unpickled: ModuleNotFoundError" in text
    assert "hint: or give it: `restore(path, train_loop_per_worker=…)`" in text
    assert DataParallelTrainer.restore(storage / "cut", saves()).fit().return_value == 0


def test_what_could_not_be_kept_must_be_given(storage: Path) -> None:
    class Locks(UserCallback):
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.ended = 0

        def on_end(self, run_context: Any, result: Any) -> None:
            self.ended += 1

    run = fails(storage, callbacks=[Locks()])
    text = refused(run, ConfigError)
    assert text.startswith(
        f"`run_config` of the run `{run}` could not be kept: TypeError: cannot pickle '_thread.lock'"
    )
    assert text.endswith("hint: give it: `restore(path, run_config=…)`")
    callback = Locks()
    given = RunConfig(callbacks=[callback], verbose=0)
    result = DataParallelTrainer.restore(run, train_loop_config={"steps": 3}, run_config=given).fit()
    assert (result.return_value, callback.ended) == (2, 1)


def test_callbacks_are_kept_as_they_were_when_the_run_began(storage: Path) -> None:
    class Counts(UserCallback):
        def __init__(self) -> None:
            self.reports = 0

        def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
            self.reports += 1

    counts = Counts()
    run = fails(storage, callbacks=[counts])
    assert counts.reports == 2
    (restored,) = DataParallelTrainer.restore(run).run_config.callbacks
    assert restored.reports == 0


def test_arguments_that_are_none_and_names_that_are_others_are_refused(storage: Path) -> None:
    run = fails(storage)
    assert refused(run, ConfigTypeError, scaling_confg={}).startswith("`restore()` has no argument `scaling_confg`")
    assert "`run_config.name` is 'other', and the run is" in refused(run, ConfigError, run_config={"name": "other"})
    assert "`train_loop_per_worker` is an int" in refused(run, ConfigTypeError, train_loop_per_worker=3)
    assert "`train_loop_config` is a list" in refused(run, ConfigTypeError, train_loop_config=[1])


def test_a_trainer_of_the_users_own_comes_back_with_what_it_has(storage: Path) -> None:
    class Own(DataParallelTrainer):
        def __init__(self, storage: Path, note: str) -> None:
            self.note = note
            super().__init__(
                saves(), train_loop_config={"steps": 1}, run_config=RunConfig(name="own", storage_path=storage)
            )

    class Other(DataParallelTrainer):
        pass

    assert Own(storage, "mine").fit().return_value == 0
    restored = Own.restore(storage / "own")
    assert type(restored) is Own and restored.note == "mine"
    by_base = DataParallelTrainer.restore(storage / "own")
    assert type(by_base).__qualname__ == Own.__qualname__ and by_base.note == "mine"  # type: ignore[attr-defined]
    assert restored.fit().return_value == 1
    assert Other.can_restore(storage / "own") is False
    with pytest.raises(ConfigError) as caught:
        Other.restore(storage / "own")
    assert "is of a `Own`, which is not a `Other`\nhint: call `Own.restore(path)`" in str(caught.value)


def test_the_older_trainer_and_its_runs_come_back_too(storage: Path) -> None:
    def function(config: dict[str, Any]) -> Any:
        return config, os.environ["GREETING"]

    older = Trainer(
        num_workers=2,
        run_config=RunConfig(
            name="older", storage_path=storage, worker_runtime_env={"env_vars": {"GREETING": "hello"}}
        ),
    )
    assert older.run(function, {"a": 1}) == [({"a": 1}, "hello")] * 2
    older.shutdown()
    restored = Trainer.restore(storage / "older")
    assert type(restored) is Trainer and restored.scaling_config.num_workers == 2
    assert restored.fit().return_value == ({"a": 1}, "hello")


def test_only_the_owner_can_read_what_may_hold_secrets(storage: Path) -> None:
    run = fails(storage)
    for name in ("trainer.pkl", "function.pkl"):
        assert stat.S_IMODE((run / name).stat().st_mode) == 0o600
    assert sorted(path.name for path in run.glob("*.part")) == []


def _large() -> Callable[[], int]:
    ballast = os.urandom(3 << 20)

    def function() -> int:
        return len(ballast)

    return function


def test_what_is_large_and_the_same_is_written_once(storage: Path) -> None:
    function = _large()
    assert fit(function, storage, workers=1, name="large").return_value == 3 << 20
    kept, small = storage / "large" / "function.pkl", storage / "large" / "trainer.pkl"
    assert kept.stat().st_size > 3 << 20 > 10 * small.stat().st_size
    first = kept.stat()
    fit(function, storage, workers=1, name="large", resume=True)
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    fit(_large(), storage, workers=1, name="large", resume=True)
    assert kept.stat().st_ino != first.st_ino
    assert DataParallelTrainer.restore(storage / "large").fit().return_value == 3 << 20


def test_a_large_config_is_kept_once(storage: Path) -> None:
    def function(config: dict[str, Any]) -> int:
        return len(config["rows"])

    rows = os.urandom(2 << 20)
    fit(function, storage, workers=1, config={"rows": rows}, name="rows")
    assert (storage / "rows" / "trainer.pkl").stat().st_size < 1 << 20
    assert DataParallelTrainer.restore(storage / "rows").train_loop_config == {"rows": rows}
    given = DataParallelTrainer.restore(storage / "rows", saves())
    assert given.train_loop_config == {"rows": rows}


def test_a_run_of_no_python_driver_has_no_trainer(storage: Path) -> None:
    run = storage / "rust"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"name": "rust", "asked": {}}))
    assert refused(run).startswith(f"the run `{run}` has no `trainer.pkl`")


def test_a_checkpoint_to_begin_with_comes_back_unless_it_was_temporary(storage: Path, tmp_path: Path) -> None:
    def function() -> Any:
        from carril import train

        latest = train.get_checkpoint()
        if latest is None:
            return None
        return latest.to_dict()

    def begun(name: str, checkpoint: Checkpoint) -> Path:
        DataParallelTrainer(
            function, run_config=RunConfig(name=name, storage_path=storage), resume_from_checkpoint=checkpoint
        ).fit()
        return storage / name

    lasting = Checkpoint(Checkpoint.from_dict({"step": 7}).to_directory(tmp_path / "lasting"))
    run = begun("lasting", lasting)
    restored = DataParallelTrainer.restore(run)
    assert restored.resume_from_checkpoint is not None and restored.resume_from_checkpoint.path == lasting.path
    assert restored.fit().return_value == {"step": 7}
    run = begun("temporary", Checkpoint.from_dict({"step": 8}))
    text = refused(run, ConfigError)
    assert text == (
        f"`resume_from_checkpoint` of the run `{run}` could not be kept: it was a temporary one of the driver\n"
        "hint: give it: `restore(path, resume_from_checkpoint=…)`"
    )
    given = DataParallelTrainer.restore(run, resume_from_checkpoint=lasting)
    assert given.fit().return_value == {"step": 7}


def test_a_temporary_beginning_is_not_missed_where_the_run_has_its_own(storage: Path) -> None:
    first = Checkpoint.from_dict({"unused": 1})
    with pytest.raises(WorkerGroupError):
        DataParallelTrainer(
            _begins_anew(),
            run_config=RunConfig(name="own", storage_path=storage),
            resume_from_checkpoint=first,
        ).fit()
    assert DataParallelTrainer.restore(storage / "own").fit().return_value == {"step": 1}


def _begins_anew() -> Callable[[], Any]:
    def function() -> Any:
        from carril import train

        latest = train.get_checkpoint()
        assert latest is not None
        if "step" in latest.to_dict():
            return latest.to_dict()
        train.report({}, checkpoint=train.Checkpoint.from_dict({"step": 1}))
        raise RuntimeError("on purpose")

    return function


def test_a_result_that_is_read_back_has_the_restarts(storage: Path) -> None:
    def function() -> None:
        from carril import train

        latest = train.get_checkpoint()
        step = latest.to_dict()["step"] + 1 if latest else 0
        if step < 2:
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
            raise RuntimeError(f"of step {step}")

    result = fit(function, storage, workers=1, name="again", failure_config=FailureConfig(max_failures=3))
    assert [restart["attempt"] for restart in result.restarts] == [1, 2]
    stored = Result.from_path(storage / "again").restarts
    for told, read in zip(result.restarts, stored, strict=True):
        assert read == {**told, "at": pytest.approx(told["at"], abs=0.1)}
    assert {restart["code"] for restart in stored} == {"user-exception"} and "of step 1" in stored[1]["reason"]
    fit(function, storage, workers=1, name="again", resume=True)
    assert Result.from_path(storage / "again").restarts == [], "they are those of the last fit()"
