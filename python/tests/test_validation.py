"""The user's check of a checkpoint, which runs beside the training and whose metrics join the checkpoint's."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground
from conftest import processes, wait_until
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401
from recovery_runs import journal_of
from s3_server import Place, S3Server, place_fixture, s3_fixture, s3_variables_fixture  # noqa: F401

import carril
from carril._internal import driver
from carril.exceptions import ConfigError, NotAvailableError
from carril.train import (
    CheckpointConfig,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
    WorkerGroupError,
)

AS_RAY = (str(Path(sys.executable).parent / "carril"), "as-ray", "--")


@pytest.fixture(autouse=True)
def own_head() -> Iterator[None]:
    """Some tests kill it."""
    carril.init(num_cpus=4)
    yield
    carril.shutdown()


def steps() -> Callable[[dict[str, Any]], Any]:
    """Reports one checkpoint per step, to be validated, and returns what `get_all_reported_checkpoints` says."""

    def function(config: dict[str, Any]) -> Any:
        import os
        import time

        from carril import train

        latest = train.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest is not None else 0
        seen = []
        for step in range(first, config["steps"]):
            validation: Any = True
            if "tasks" in config:
                given = config["tasks"][step]
                validation = train.ValidationTaskConfig(**given) if isinstance(given, dict) else given
            rank_zero = train.get_context().get_world_rank() == 0
            checkpoint = train.Checkpoint.from_dict({"step": step}) if rank_zero else None
            train.report({"step": step}, checkpoint=checkpoint, validation=validation if rank_zero else False)
            if "mode" in config:
                listed = train.get_all_reported_checkpoints(config["mode"], config.get("patience"))
                seen.append([(one.metrics["step"], one.status.value, one.metrics.get("score")) for one in listed])
        if "trained" in config:
            open(config["trained"], "w").close()
        while "hold" in config and not os.path.exists(config["hold"]):
            time.sleep(0.005)
        return seen

    return function


def scores() -> Callable[..., dict[str, Any]]:
    """A check whose score is the square of the step, less what it is given."""

    def check(checkpoint: Any, less: float = 0.0, notes: str = "", go: str = "") -> dict[str, Any]:
        import os
        import time

        step = checkpoint.to_dict()["step"]
        if notes:
            with open(notes, "a") as file:
                file.write(f"begins {step} {os.getpid()}\n")
        while go and not os.path.exists(go):
            time.sleep(0.005)
        if notes:
            with open(notes, "a") as file:
                file.write(f"ends {step} {os.getpid()}\n")
        return {"score": step * step - less, "nested": {"step": step}}

    return check


def trainer(
    storage: Any, check: Any, config: dict[str, Any], workers: int = 2, task: dict[str, Any] | None = None, **run: Any
) -> DataParallelTrainer:
    return DataParallelTrainer(
        steps(),
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, **run),
        validation_config=ValidationConfig(check, ValidationTaskConfig(**task) if task else None),
    )


def found(result: Result) -> list[tuple[int, Any]]:
    return [(metrics["step"], metrics.get("score")) for _, metrics in result.best_checkpoints]


def manifests(run: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for path in sorted(run.glob("checkpoint_*/.manifest.json")):
        try:
            manifest = json.loads(path.read_text())
        except FileNotFoundError:  # deleted in this moment
            continue
        found[manifest["metrics"]["step"]] = manifest
    return found


def rows(notes: Path, kind: str) -> list[int]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(kind)]


def test_what_the_check_returns_joins_the_metrics_of_the_checkpoint(storage: Path) -> None:
    result = trainer(storage, scores(), {"steps": 3}, task={"fn_kwargs": {"less": 0.5}}, name="run").fit()
    assert found(result) == [(0, -0.5), (1, 0.5), (2, 3.5)]
    assert result.metrics["score"] == 3.5 and result.metrics["nested"] == {"step": 2}
    kept = manifests(storage / "run")
    assert [(step, one["metrics"]["score"], one["validation"]["status"]) for step, one in kept.items()] == [
        (0, -0.5, "validated"),
        (1, 0.5, "validated"),
        (2, 3.5, "validated"),
    ]
    again = Result.from_path(storage / "run")
    assert found(again) == found(result) and again.metrics["score"] == 3.5
    best = again.get_best_checkpoint("score", "max")
    assert best is not None and best.to_dict() == {"step": 2}


def test_it_runs_beside_the_training_in_a_fork_of_the_zygote_that_takes_no_cpu(storage: Path, tmp_path: Path) -> None:
    go, trained, hold = tmp_path / "go", tmp_path / "trained", tmp_path / "hold"
    config = {"steps": 2, "trained": str(trained), "hold": str(hold)}
    task = {"fn_kwargs": {"go": str(go)}}
    running = InBackground(trainer(storage, scores(), config, workers=4, task=task, name="run").fit)
    # All four CPUs are taken, and the first check has begun and waits.
    check = storage / "run" / "validations" / "checkpoint_000000"
    wait_until(lambda: trained.exists() and (check / "run.json").exists(), "the training goes on")
    wait_until(lambda: json.loads((check / "run.json").read_text())["status"] == "running", "the check runs")
    assert carril.available_resources().get("CPU", 0) == 0
    started = next(row["reason"] for row in journal_of(check) if row["event"].startswith("WorkerStarted"))
    assert "fork" in started, started
    go.touch()
    hold.touch()
    assert found(running.finish()) == [(0, 0), (1, 1)]


def test_one_at_a_time_in_the_order_of_the_reports_and_the_end_waits(storage: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    task = {"fn_kwargs": {"notes": str(notes)}}
    result = trainer(storage, scores(), {"steps": 4}, task=task).fit()
    order = [line.split()[:2] for line in notes.read_text().splitlines()]
    assert order == [[what, str(step)] for step in range(4) for what in ("begins", "ends")]
    assert [score for _, score in found(result)] == [0, 1, 4, 9]


def test_the_arguments_of_one_report_go_before_those_of_the_trainer(storage: Path) -> None:
    tasks = [True, {"fn_kwargs": {"less": 10**30}}, False, {}, {"fn_kwargs": {"less": float("-inf")}}]
    result = trainer(storage, scores(), {"steps": 5, "tasks": tasks}, task={"fn_kwargs": {"less": 0.5}}).fit()
    assert found(result) == [(0, -0.5), (1, 1 - 10**30), (2, None), (3, 8.5), (4, float("inf"))]


def test_the_score_of_the_check_decides_what_is_kept(storage: Path) -> None:
    def check(checkpoint: Any) -> dict[str, Any]:
        return {"score": {0: 1, 1: 5, 2: 3, 3: 4}[checkpoint.to_dict()["step"]]}

    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = trainer(storage, check, {"steps": 4}, name="run", checkpoint_config=config).fit()
    assert found(result) == [(3, 4), (1, 5)]
    assert sorted(manifests(storage / "run")) == [1, 3]


def test_a_checkpoint_stays_until_its_check_is_over(storage: Path, tmp_path: Path) -> None:
    go, trained = tmp_path / "go", tmp_path / "trained"
    task = {"fn_kwargs": {"go": str(go)}}
    config = CheckpointConfig(num_to_keep=1)
    fit = trainer(
        storage,
        scores(),
        {"steps": 5, "tasks": [True, False, False, True, False], "trained": str(trained)},
        task=task,
        name="run",
        checkpoint_config=config,
    ).fit
    running = InBackground(fit)
    wait_until(trained.exists, "the function has reported everything")
    wait_until(lambda: sorted(manifests(storage / "run")) == [0, 3, 4], "the others are gone")
    go.touch()
    assert found(running.finish()) == [(4, None)]
    assert sorted(manifests(storage / "run")) == [4]


def test_the_function_sees_how_far_each_check_has_come(storage: Path, tmp_path: Path) -> None:
    result = trainer(storage, scores(), {"steps": 2, "mode": "VALIDATED"}, workers=1).fit()
    assert result.return_value == [[(0, "VALIDATED", 0)], [(0, "VALIDATED", 0), (1, "VALIDATED", 1)]]
    default = trainer(storage, scores(), {"steps": 1, "mode": None}, workers=1).fit()
    assert default.return_value == [[(0, "VALIDATED", 0)]]
    go = tmp_path / "go"
    config = {"steps": 2, "mode": "COMMITTED", "trained": str(go)}
    result = trainer(storage, scores(), config, workers=1, task={"fn_kwargs": {"go": str(go)}}).fit()
    pending = "PENDING_VALIDATION"
    assert result.return_value == [[(0, pending, None)], [(0, pending, None), (1, pending, None)]]
    late = {"steps": 1, "mode": "VALIDATED", "patience": 0.1, "trained": str(tmp_path / "later")}
    task = {"fn_kwargs": {"go": str(tmp_path / "later")}}
    result = trainer(storage, scores(), late, workers=1, task=task).fit()
    assert result.return_value == [[(0, pending, None)]]
    assert found(result) == [(0, 0)]


def failing(how: str) -> Callable[..., Any]:
    def check(checkpoint: Any, how: str = how) -> Any:
        import os
        import time

        if checkpoint.to_dict()["step"] == 1:
            return {"score": 1}
        if how == "raises":
            raise ValueError("this model is no good")
        if how == "exits":
            os._exit(3)
        if how == "hangs":
            time.sleep(600)
        return None

    return check


@pytest.mark.parametrize(
    ("how", "status", "why"),
    [
        ("raises", "VALIDATION_FAILED", "ValueError: this model is no good"),
        ("exits", "VALIDATION_FAILED", "exit code 3"),
        ("returns None", "VALIDATION_FAILED", "returned a NoneType: `ValidationConfig.fn` must return a dict"),
        ("hangs", "VALIDATION_TIMEOUT", "it took too long"),
    ],
)
def test_a_check_that_fails_costs_nothing_but_itself(
    storage: Path, capfd: pytest.CaptureFixture[str], how: str, status: str, why: str
) -> None:
    config = {"steps": 2, "mode": "VALIDATED", "tasks": [{"timeout_s": 1} if how == "hangs" else True, True]}
    result = trainer(storage, failing(how), config, workers=1, name="run").fit()
    assert result.return_value[-1] == [(0, status, None), (1, "VALIDATED", 1)]
    assert found(result) == [(0, None), (1, 1)]
    told = capfd.readouterr()
    text = told.out + told.err
    assert "the validation of `checkpoint_000000` failed: " in text and why in text and "rank 0" not in text, text
    if how == "raises":
        error = (storage / "run" / "validations" / "checkpoint_000000" / "error.txt").read_text()
        assert "this model is no good" in error and "Traceback" in error
    names = {"VALIDATION_FAILED": "failed", "VALIDATION_TIMEOUT": "timeout"}
    assert manifests(storage / "run")[0]["validation"]["status"] == names[status]


def test_a_check_whose_process_is_killed_is_made_again(storage: Path, tmp_path: Path) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    task = {"fn_kwargs": {"notes": str(notes), "go": str(go)}}
    running = InBackground(trainer(storage, scores(), {"steps": 1}, task=task).fit)
    wait_until(lambda: rows(notes, "begins"), "the check has begun")
    os.kill(int(notes.read_text().split()[2]), signal.SIGKILL)
    wait_until(lambda: len(rows(notes, "begins")) == 2, "it begins again")
    go.touch()
    assert found(running.finish()) == [(0, 0)]


def test_a_restart_of_the_training_leaves_the_check_alone(storage: Path, tmp_path: Path) -> None:
    notes, go, trained = tmp_path / "notes", tmp_path / "go", tmp_path / "trained"
    hold = tmp_path / "hold"
    config = {"steps": 1, "trained": str(trained), "hold": str(hold)}
    task = {"fn_kwargs": {"notes": str(notes), "go": str(go)}}
    running = InBackground(trainer(storage, scores(), config, workers=1, task=task, name="run").fit)
    wait_until(lambda: rows(notes, "begins") and trained.exists(), "both have begun")
    check = int(notes.read_text().split()[2])
    trained.unlink()
    client = driver.ensure_client()
    workers = [one.pid for one in processes() if one.parent == client.head_pid and one.pid != check]
    for pid in workers:
        if any(row["event"] == "WorkerReady: rank 0" for row in journal_of(storage / "run")):
            os.kill(pid, signal.SIGKILL)
    wait_until(trained.exists, "the second attempt")
    go.touch()
    hold.touch()
    result = running.finish()
    assert len(result.restarts) == 1 and found(result) == [(0, 0)]
    assert rows(notes, "begins") == [0] and rows(notes, "ends") == [0]


def test_a_check_that_a_lost_head_had_is_made_by_the_next(storage: Path, tmp_path: Path) -> None:
    notes, go, trained = tmp_path / "notes", tmp_path / "go", tmp_path / "trained"
    config = {"steps": 2, "trained": str(trained)}
    task = {"fn_kwargs": {"notes": str(notes), "go": str(go)}}
    running = InBackground(trainer(storage, scores(), config, task=task, name="run").fit)
    wait_until(lambda: rows(notes, "begins") == [0] and trained.exists(), "the first check has begun")
    wait_until(lambda: sorted(manifests(storage / "run")) == [0, 1], "both are stored")
    os.kill(driver.ensure_client().head_pid, signal.SIGKILL)
    go.touch()
    result = running.finish()
    assert [restart["code"] for restart in result.restarts] == ["head-lost"]
    assert found(result) == [(0, 0), (1, 1)]
    assert [one["validation"]["status"] for one in manifests(storage / "run").values()] == ["validated"] * 2
    assert rows(notes, "ends") in ([0, 1], [0, 0, 1]), "in the order of the reports"


def test_a_run_that_fails_leaves_its_checks_to_the_next_fit(storage: Path, tmp_path: Path) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    task = {"fn_kwargs": {"notes": str(notes), "go": str(go)}}

    def fails(config: dict[str, Any]) -> None:
        import os
        import time

        from carril import train

        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"step": 0}), validation=True)
        while not os.path.exists(config["notes"]):
            time.sleep(0.005)
        raise RuntimeError("on purpose")

    first = trainer(storage, scores(), {"steps": 2, "notes": str(notes)}, workers=1, task=task, name="run")
    first.train_loop_per_worker = fails
    with pytest.raises(WorkerGroupError, match="on purpose"):
        first.fit()
    pid = int(notes.read_text().split()[2])
    wait_until(lambda: pid not in [one.pid for one in processes()], "the check ends with its run")
    assert manifests(storage / "run")[0]["validation"]["status"] == "pending"
    go.touch()
    result = trainer(storage, scores(), {"steps": 2, "notes": str(notes)}, workers=1, task=task, name="run").fit()
    assert found(result) == [(0, 0), (1, 1)]


def test_with_storage_elsewhere(s3: S3Server, place: Place, s3_variables: None) -> None:
    carril.shutdown()
    carril.init(num_cpus=4)  # with the variables of the server
    result = trainer(place.uri, scores(), {"steps": 2}, workers=1, name="run").fit()
    assert found(result) == [(0, 0), (1, 1)]
    kept = manifests(place.directory / "run")
    assert [one["validation"]["status"] for one in kept.values()] == ["validated"] * 2
    assert found(Result.from_path(f"{place.uri}/run")) == [(0, 0), (1, 1)]


def test_without_workers_it_is_done_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    config = {"steps": 2, "mode": "VALIDATED"}
    result = trainer(None, scores(), config, workers=0).fit()
    assert result.return_value == [[(0, "VALIDATED", 0)], [(1, "VALIDATED", 1)]]
    assert found(result) == [(1, 1)]
    result = trainer(None, failing("raises"), {"steps": 1, "mode": "VALIDATED"}, workers=0).fit()
    assert result.return_value == [[(0, "VALIDATION_FAILED", None)]]
    assert "ValueError: this model is no good" in capfd.readouterr().err


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no checkpoint", r"`report\(validation=…\)` without a checkpoint"),
        ("no config", r"the trainer has no `validation_config`"),
        ("a word", r"`validation` is a str: it must be True, False or a `ValidationTaskConfig`"),
        ("an object", r"`ValidationTaskConfig.fn_kwargs\['x'\]` is an object"),
    ],
)
def test_bad_input_to_report(storage: Path, workers: int, case: str, message: str) -> None:
    def function() -> str:
        from carril import train

        given: Any = {"a word": "yes", "an object": train.ValidationTaskConfig(fn_kwargs={"x": object()})}.get(
            case, True
        )
        checkpoint = None if case == "no checkpoint" else train.Checkpoint.from_dict({"step": 0})
        try:
            train.report({"step": 0}, checkpoint=checkpoint, validation=given)
        except (ValueError, TypeError) as error:
            return str(error)
        return "nothing was raised"

    made = DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage),
        validation_config=None if case == "no config" else ValidationConfig(scores()),
    )
    result = made.fit()
    import re

    assert re.search(message, result.return_value), result.return_value
    assert result.metrics is None or "step" not in result.metrics, "RPT-1: it leaves no trace"


def test_bad_input_to_the_configuration() -> None:
    with pytest.raises(TypeError, match=r"`ValidationConfig.fn` is a str: it must be a function"):
        DataParallelTrainer(lambda: None, validation_config=ValidationConfig("check"))  # type: ignore[arg-type]
    with pytest.raises(NotAvailableError, match="a validation with devices is not built yet"):
        ValidationConfig(scores(), ray_remote_kwargs={"num_gpus": 1})
    ValidationConfig(scores(), ray_remote_kwargs={"num_cpus": 2})
    with pytest.raises(ConfigError, match="timeout_s` is 0: it must be above 0"):
        ValidationTaskConfig(timeout_s=0)
    with pytest.raises(TypeError, match="fn_kwargs` is a list: it must be a dict"):
        ValidationTaskConfig(fn_kwargs=[1])  # type: ignore[arg-type]


def test_a_function_that_cannot_travel_is_named(storage: Path) -> None:
    import threading

    lock = threading.Lock()

    def check(checkpoint: Any) -> dict[str, Any]:
        with lock:
            return {}

    with pytest.raises(ConfigError, match=r"uses the variable `lock`, a _thread\.lock, which cannot be sent"):
        trainer(storage, check, {"steps": 1}).fit()


SCRIPT = """
    import os, pickle
    from ray import train
    from ray.train import Checkpoint, ScalingConfig, ValidationConfig, ValidationTaskConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    class Model:
        def __init__(self, weight):
            self.weight = weight

    def check(checkpoint, times=1):
        with checkpoint.as_directory() as directory, open(os.path.join(directory, "model"), "rb") as file:
            return {"score": pickle.load(file).weight * times}

    def loop():
        os.makedirs("saved", exist_ok=True)
        with open("saved/model", "wb") as file:
            pickle.dump(Model(3), file)
        train.report({}, checkpoint=Checkpoint.from_directory("saved"), validation=ValidationTaskConfig(fn_kwargs={"times": 2}))

    config = ValidationConfig(fn=check, task_config=ValidationTaskConfig(timeout_s=60))
    result = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=1), validation_config=config).fit()
    print(f"score={result.best_checkpoints[0][1]['score']}")
"""


def test_a_ray_script_whose_checkpoint_holds_an_object_of_its_own_class(scripts: Scripts) -> None:
    assert values(scripts.run(SCRIPT, before=AS_RAY))["score"] == "6"
