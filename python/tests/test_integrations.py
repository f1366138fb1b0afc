"""MLflow and Weights & Biases with the real libraries: a local database, and runs that stay offline.

MLflow's database takes seconds to make, so one is shared. `wandb` starts a process of its own, which each of its tests
ends as a script's exit would.
"""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import wandb
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401
from mlflow import MlflowClient
from runs import fit

from carril._internal.command import find_command
from carril.exceptions import ConfigError
from carril.integrations.mlflow import MLflowLoggerCallback, setup_mlflow
from carril.integrations.wandb import WandbLoggerCallback, setup_wandb
from carril.train import ControllerError, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")


def reports() -> Callable[..., Any]:
    def function(config: dict[str, Any]) -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        for step in range(config["steps"]):
            metrics = {"loss": 1.0 / (step + 1), "rank": rank, "nested": {"a(b)": step}, "note": "text"}
            train.report(metrics, checkpoint=train.Checkpoint.from_dict({"step": step}) if rank == 0 else None)
        if config.get("fails"):
            raise ValueError("of the user")

    return function


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of an MLflow database, with its artifacts beside it."""
    place = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{place / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    for name in ("callback", "worker", "killed"):
        client.create_experiment(name, artifact_location=f"file://{place / 'artifacts'}")
    return uri


def runs_of(database: str, experiment: str) -> list[Any]:
    client = MlflowClient(tracking_uri=database)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def only_run(database: str, experiment: str, name: str) -> Any:
    (found,) = [run for run in runs_of(database, experiment) if run.info.run_name == name]
    return found


def test_mlflow_has_the_config_and_every_report_of_rank_0(storage: Path, database: str) -> None:
    callback = MLflowLoggerCallback(
        tracking_uri=database, experiment_name="callback", tags={"team": 7}, save_artifact=True
    )
    config = {"steps": 3, "lr": 0.1, "model": {"width": 8}}
    fit(reports(), storage, config=config, name="logged", callbacks=[callback], verbose=0)
    run = only_run(database, "callback", "logged")
    assert run.info.status == "FINISHED" and run.data.tags["team"] == "7"
    assert run.data.params == {"steps": "3", "lr": "0.1", "model/width": "8"}
    client = MlflowClient(tracking_uri=database)
    history = client.get_metric_history(run.info.run_id, "loss")
    assert sorted((metric.step, metric.value) for metric in history) == [(1, 1.0), (2, 0.5), (3, 1.0 / 3)]
    assert run.data.metrics["rank"] == 0 and run.data.metrics["nested/a_b_"] == 2 and "note" not in run.data.metrics
    kept = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"result.json", "checkpoint_000002"} <= kept
    assert mlflow.active_run() is None, "the driver's own state is left alone"


def test_mlflow_gets_more_reports_than_fit_into_one_request(storage: Path, database: str) -> None:
    def function() -> None:
        from carril import train

        for step in range(2_500):
            train.report({"step": step})

    callback = MLflowLoggerCallback(database, experiment_name="new here", log_params_on_trial_end=True)
    fit(function, storage, workers=1, name="many", callbacks=[callback], verbose=0)
    run = only_run(database, "new here", "many")
    history = MlflowClient(tracking_uri=database).get_metric_history(run.info.run_id, "step")
    assert sorted(metric.value for metric in history) == list(range(2_500))


def test_mlflow_knows_that_a_run_failed(storage: Path, database: str) -> None:
    callback = MLflowLoggerCallback(database, experiment_name="callback")
    with pytest.raises(WorkerGroupError, match="ValueError: of the user"):
        fit(reports(), storage, config={"steps": 1, "fails": True}, name="bad", callbacks=[callback], verbose=0)
    run = only_run(database, "callback", "bad")
    assert run.info.status == "FAILED" and run.data.metrics["loss"] == 1.0
    # The same callback, for the next run.
    fit(reports(), storage, config={"steps": 2}, name="good", callbacks=[callback], verbose=0)
    assert only_run(database, "callback", "good").info.status == "FINISHED"


def test_mlflow_knows_that_a_run_was_interrupted(scripts: Scripts, database: str) -> None:
    script = scripts.start(
        """
        import sys
        from carril import train
        from carril.integrations.mlflow import MLflowLoggerCallback

        def loop():
            import time
            train.report({"a": 1})
            print("reported", flush=True)
            time.sleep(60)

        if __name__ == "__main__":
            callback = MLflowLoggerCallback(sys.argv[1], experiment_name="killed")
            train.DataParallelTrainer(loop, run_config={"name": "cut", "callbacks": [callback]}).fit()
        """,
        database,
    )
    wait_until(lambda: "reported" in script.output, "the first report", lambda: script.output)
    script.send(signal.SIGINT)
    assert script.finish() != 0
    run = only_run(database, "killed", "cut")
    assert run.info.status == "KILLED" and run.data.metrics == {"a": 1.0}


def test_setup_mlflow_logs_from_rank_0_and_is_silent_on_the_others(storage: Path, database: str) -> None:
    def function(config: dict[str, Any]) -> Any:
        from carril import train
        from carril.integrations.mlflow import setup_mlflow

        mlflow = setup_mlflow(config, tracking_uri=config["uri"], experiment_name="worker", tags={"by": "worker"})
        for step in range(2):
            mlflow.log_metric("loss", 0.5 + step, step=step)
        with mlflow.start_run(nested=True, run_name="inner") as run:
            train.report({"active": bool(run.info) and hasattr(mlflow, "__file__")})

    from carril.train import Result

    fit(function, storage, config={"uri": database, "lr": 1}, name="within", verbose=0)
    run = only_run(database, "worker", "within")
    assert run.data.params["lr"] == "1" and run.data.metrics == {"loss": 1.5} and run.data.tags["by"] == "worker"
    assert sorted(found.info.run_name for found in runs_of(database, "worker")) == ["inner", "within"]
    assert all(found.info.status == "FINISHED" for found in runs_of(database, "worker"))
    result = Result.from_path(storage / "within")
    assert [result.rank_metrics(rank)[0]["active"] for rank in (0, 1)] == [True, False]


def test_setup_mlflow_makes_an_experiment_only_when_it_is_told_to(database: str) -> None:
    with pytest.raises(ConfigError) as caught:
        setup_mlflow(tracking_uri=database, experiment_name="nowhere")
    assert str(caught.value) == (
        "MLflow has no experiment named `nowhere`\nhint: `create_experiment_if_not_exists=True` makes it"
    )


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """`wandb` as a user has it offline, with its own directories in a home of the test's."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    yield
    wandb.teardown()


def offline_runs(place: Path) -> list[Path]:
    return sorted(place.glob("wandb/offline-run-*"))


def written(run: Path) -> bytes:
    """What `wandb sync` would send."""
    (file,) = run.glob("run-*.wandb")
    return file.read_bytes()


@pytest.mark.usefixtures("offline")
def test_wandb_has_the_config_and_the_reports_of_rank_0_in_the_runs_directory(storage: Path) -> None:
    callback = WandbLoggerCallback(
        project="digits", group="tries", excludes=["rank"], log_config=True, upload_checkpoints=True, tags=["mine"]
    )
    config = {"steps": 3, "rate": 0.125}
    fit(reports(), storage, config=config, name="logged run", callbacks=[callback], verbose=0)
    (run,) = offline_runs(storage / "logged run")
    data = written(run)
    for text in (b"digits", b"tries", b"logged run", b"mine", b"rate", b"nested/a(b)", b"config/rate", b"note"):
        assert text in data, text
    assert data.count(b"checkpoint_logged_run") >= 3, "a version of the artifact for each checkpoint"
    assert b'"rank"' not in data and not re.search(rb"\x04rank", data)
    summary = json.loads(re.findall(rb'"?loss"?\W*?(0\.3\d+)', data)[-1])
    assert summary == pytest.approx(1 / 3)


@pytest.mark.usefixtures("offline")
def test_wandb_runs_of_one_driver_are_apart_and_a_failed_one_is_ended(storage: Path) -> None:
    own = wandb.init(project="own", dir=str(storage))
    callback = WandbLoggerCallback(project="digits")
    with pytest.raises(WorkerGroupError, match="ValueError: of the user"):
        fit(reports(), storage, config={"steps": 1, "fails": True}, name="bad", callbacks=[callback], verbose=0)
    fit(reports(), storage, config={"steps": 1}, name="good", callbacks=[callback], verbose=0)
    assert [len(offline_runs(storage / name)) for name in ("bad", "good")] == [1, 1]
    assert wandb.run is own, "the driver's own run is left alone"
    own.finish()


@pytest.mark.usefixtures("offline")
def test_setup_wandb_logs_from_rank_0_and_is_disabled_on_the_others(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        from carril import train
        from carril.integrations.wandb import setup_wandb

        run = setup_wandb(config, project="within", rank_zero_only=config["rank_zero_only"])
        run.log({"loss": 0.5})
        train.report({"name": run.name or "", "offline": run.offline})
        run.finish()

    one = fit(function, storage, config={"rank_zero_only": True}, name="one", verbose=0)
    assert [one.rank_metrics(rank)[0]["offline"] for rank in (0, 1)] == [True, False]
    assert one.rank_metrics(0)[0]["name"] == "one"
    (run,) = offline_runs(storage / "one")
    assert b"within" in written(run) and b"loss" in written(run)
    both = fit(function, storage, config={"rank_zero_only": False}, name="both", verbose=0)
    assert [both.rank_metrics(rank)[0]["name"] for rank in (0, 1)] == ["both-rank0", "both-rank1"]
    assert len(offline_runs(storage / "both")) == 2


@pytest.mark.usefixtures("offline")
def test_a_key_comes_from_the_argument_or_a_file_and_is_written_nowhere(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str | None] = []
    init = wandb.init

    def noting(**options: Any) -> Any:
        run = init(**options)
        used.append(run.settings.api_key)
        return run

    monkeypatch.setattr(wandb, "init", noting)
    secret = "local-" + "5e" * 20
    (tmp_path / "key").write_text(secret + "\n")
    for given in ({"api_key": secret}, {"api_key_file": tmp_path / "key"}):
        name = next(iter(given))
        callback = WandbLoggerCallback(project="digits", **given)  # type: ignore[arg-type]
        fit(reports(), storage, config={"steps": 1}, name=name, callbacks=[callback], verbose=0)
        files = [path for path in (storage / name).rglob("*") if path.is_file()]
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert used == [secret, secret] and secret not in "".join(os.environ.values())
    with pytest.raises(ConfigError, match="`api_key_file` is `/no/such`, which cannot be read: No such file"):
        WandbLoggerCallback(api_key_file="/no/such")
    with pytest.raises(ConfigError, match="`api_key` and `api_key_file` are both given"):
        setup_wandb(api_key="a", api_key_file="b")


def test_a_tracker_that_cannot_be_reached_ends_the_run_with_its_own_error(storage: Path) -> None:
    def function() -> None:
        import time

        time.sleep(60)

    callback = MLflowLoggerCallback("unknown-scheme://nowhere", experiment_name="x")
    with pytest.raises(ControllerError, match=r"the run was ended by .*unknown-scheme://nowhere") as caught:
        fit(function, storage, workers=1, callbacks=[callback], verbose=0)
    assert type(caught.value.controller_failure).__module__.startswith("mlflow.")


MISSING = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("mlflow", "wandb"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Absent())
    from ray.air.integrations import mlflow, wandb
    from ray.air.integrations.mlflow import MLflowLoggerCallback, setup_mlflow
    from ray.air.integrations.wandb import WandbLoggerCallback, setup_wandb

    for call in (MLflowLoggerCallback, setup_mlflow, WandbLoggerCallback, setup_wandb):
        try:
            call()
        except ImportError as error:
            print(error)
    import ray.air
    print(f"module={ray.air.integrations.wandb is wandb} {WandbLoggerCallback.__module__}")
"""


def test_without_the_library_one_error_says_what_installs_it_also_under_rays_names(scripts: Scripts) -> None:
    output = scripts.run(MISSING, before=(find_command(), "as-ray", "--"))
    wanted = [
        "MLflow is not installed, and this needs it\nhint: `pip install mlflow`",
        "Weights & Biases is not installed, and this needs it\nhint: `pip install wandb`",
    ]
    assert output == "\n".join([wanted[0]] * 2 + [wanted[1]] * 2) + "\nmodule=True carril.integrations.wandb\n"


def test_the_package_imports_no_tracker(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import sys
        import carril.train, carril.integrations.mlflow, carril.integrations.wandb
        print([name for name in ("mlflow", "wandb", "torch", "numpy") if name in sys.modules])
        """
    )
    assert output == "[]\n"
