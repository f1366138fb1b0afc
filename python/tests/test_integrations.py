"""MLflow and Weights & Biases with the real libraries: a local database, and runs that stay offline.

The libraries are imported by scripts and not in the tests' own process: whatever that has imported, every zygote of
later tests would import too. Each library has one script with several runs, which many tests look at.
"""

import json
import re
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, shared_scripts_fixture, wait_until  # noqa: F401

from carril._internal.command import find_command

REPORTS = """
    import json, os, sys, time
    from carril import train
    from carril.exceptions import CarrilError

    def loop(config):
        rank = train.get_context().get_world_rank()
        for step in range(config["steps"]):
            metrics = {"loss": 1.0 / (step + 1), "rank": rank, "nested": {"a(b)": step}, "note": "text"}
            train.report(metrics, checkpoint=train.Checkpoint.from_dict({"step": step}) if rank == 0 else None)
        if config.get("fails"):
            raise ValueError("of the user")

    def many():
        for step in range(2_500):
            train.report({"step": step})

    def fit(function, name, callback=None, workers=2, **config):
        run_config = train.RunConfig(name=name, verbose=0, callbacks=[callback] if callback else [])
        scaling_config = train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.1})
        return train.DataParallelTrainer(
            function, train_loop_config=config, scaling_config=scaling_config, run_config=run_config
        ).fit()

    def told(call):
        try:
            call()
        except CarrilError as error:
            return type(error).__name__, str(error).partition("\\n\\n")[0]
"""

MLFLOW = (
    REPORTS
    + """
    import mlflow
    from carril.integrations.mlflow import MLflowLoggerCallback, setup_mlflow

    def within(config):
        mlflow = setup_mlflow(config, tracking_uri=config["uri"], experiment_name="worker", tags={"by": "worker"})
        for step in range(2):
            mlflow.log_metric("loss", 0.5 + step, step=step)
        with mlflow.start_run(nested=True, run_name="inner") as run:
            train.report({"active": bool(run.info) and hasattr(mlflow, "__file__")})

    def seen(client, experiment):
        runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
        return {
            run.info.run_name: {
                "status": run.info.status,
                "params": run.data.params,
                "tags": run.data.tags,
                "metrics": run.data.metrics,
                "history": sorted(
                    (metric.step, metric.value)
                    for name in ("loss", "step") for metric in client.get_metric_history(run.info.run_id, name)
                ),
                "files": [file.path for file in client.list_artifacts(run.info.run_id)],
            }
            for run in runs
        }

    if __name__ == "__main__":
        uri = sys.argv[1]
        client = mlflow.MlflowClient(tracking_uri=uri)
        for name in ("callback", "worker"):
            client.create_experiment(name, artifact_location=f"file://{os.getcwd()}/artifacts")
        logged = MLflowLoggerCallback(
            tracking_uri=uri, experiment_name="callback", tags={"team": 7}, save_artifact=True
        )
        fit(loop, "logged", logged, steps=3, lr=0.1, model={"width": 8})
        late = MLflowLoggerCallback(uri, experiment_name="new here", log_params_on_trial_end=True)
        fit(many, "many", late, workers=1, late=1)
        again = MLflowLoggerCallback(uri, experiment_name="callback")
        failed = told(lambda: fit(loop, "bad", again, steps=1, fails=True))
        fit(loop, "good", again, steps=2)
        active = mlflow.active_run()
        refused = told(lambda: setup_mlflow(tracking_uri=uri, experiment_name="nowhere"))
        result = fit(within, "within", uri=uri, lr=1)
        nowhere = MLflowLoggerCallback("unknown-scheme://nowhere", experiment_name="x")
        unreachable = told(lambda: fit(lambda: time.sleep(60), "unreachable", nowhere))
        print("RESULT" + json.dumps({
            **{name: seen(client, name) for name in ("callback", "new here", "worker")},
            "active": active, "failed": failed, "refused": refused, "unreachable": unreachable,
            "ranks": [result.rank_metrics(rank)[0]["active"] for rank in (0, 1)],
        }))
    """
)


def outcome(output: str) -> dict[str, Any]:
    (line,) = re.findall(r"^RESULT(.*)$", output, re.MULTILINE)
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture(scope="module")
def database(shared_scripts: Scripts) -> Path:
    return shared_scripts.directory / "mlflow.db"


@pytest.fixture(scope="module")
def mlflow(shared_scripts: Scripts, database: Path) -> dict[str, Any]:
    """What MLflow's own client reads back after the runs."""
    return outcome(shared_scripts.run(MLFLOW, f"sqlite:///{database}"))


def test_mlflow_has_the_config_and_every_report_of_rank_0(mlflow: dict[str, Any]) -> None:
    run = mlflow["callback"]["logged"]
    assert run["status"] == "FINISHED" and run["tags"]["team"] == "7"
    assert run["params"] == {"steps": "3", "lr": "0.1", "model/width": "8"}
    assert run["history"] == [[1, 1.0], [2, 0.5], [3, 1 / 3]]
    assert run["metrics"] == {"loss": 1 / 3, "rank": 0, "nested/a_b_": 2}
    assert {"result.json", "checkpoint_000002"} <= set(run["files"])
    assert mlflow["active"] is None, "the driver's own state is left alone"


def test_mlflow_gets_more_reports_than_fit_into_one_request(mlflow: dict[str, Any]) -> None:
    run = mlflow["new here"]["many"]
    assert run["history"] == [[step + 1, step] for step in range(2_500)]
    assert run["params"] == {"late": "1"} and run["files"] == []


def test_mlflow_knows_that_a_run_failed_and_the_callback_serves_the_next(mlflow: dict[str, Any]) -> None:
    kind, text = mlflow["failed"]
    assert kind == "WorkerGroupError" and "ValueError: of the user" in text
    bad, good = mlflow["callback"]["bad"], mlflow["callback"]["good"]
    assert bad["status"] == "FAILED" and bad["history"] == [[1, 1.0]]
    assert good["status"] == "FINISHED" and good["history"] == [[1, 1.0], [2, 0.5]]


def test_mlflow_knows_that_a_run_was_interrupted(scripts: Scripts, mlflow: dict[str, Any], database: Path) -> None:
    assert "killed" not in mlflow
    script = scripts.start(
        """
        import sys, time
        from carril import train
        from carril.integrations.mlflow import MLflowLoggerCallback

        def loop():
            train.report({"a": 1})
            print("reported", flush=True)
            time.sleep(60)

        if __name__ == "__main__":
            callback = MLflowLoggerCallback(sys.argv[1], experiment_name="killed")
            train.DataParallelTrainer(loop, run_config={"name": "cut", "callbacks": [callback]}).fit()
        """,
        f"sqlite:///{database}",
    )
    wait_until(lambda: "reported" in script.output, "the first report", lambda: script.output)
    script.send(signal.SIGINT)
    assert script.finish() != 0
    with sqlite3.connect(database) as connection:
        rows = connection.execute(
            "SELECT runs.status, metrics.value FROM runs JOIN metrics USING (run_uuid) WHERE runs.name = 'cut'"
        ).fetchall()
    connection.close()
    assert rows == [("KILLED", 1.0)]


def test_setup_mlflow_logs_from_rank_0_and_is_silent_on_the_others(mlflow: dict[str, Any]) -> None:
    assert sorted(mlflow["worker"]) == ["inner", "within"]
    run = mlflow["worker"]["within"]
    assert run["params"]["lr"] == "1" and run["tags"]["by"] == "worker"
    assert run["history"] == [[0, 0.5], [1, 1.5]]
    assert {found["status"] for found in mlflow["worker"].values()} == {"FINISHED"}
    assert mlflow["ranks"] == [True, False]


def test_what_mlflow_cannot_do_is_one_clear_error(mlflow: dict[str, Any]) -> None:
    assert mlflow["refused"] == [
        "ConfigError",
        "MLflow has no experiment named `nowhere`\nhint: `create_experiment_if_not_exists=True` makes it",
    ]
    kind, text = mlflow["unreachable"]
    assert kind == "ControllerError" and re.match(r"the run was ended by \w+: .*unknown-scheme://nowhere", text, re.S)


WANDB = (
    REPORTS
    + """
    import wandb
    from carril.integrations.wandb import WandbLoggerCallback, setup_wandb

    def within(config):
        run = setup_wandb(config, project="within", rank_zero_only=config["rank_zero_only"])
        run.log({"loss": 0.5})
        train.report({"name": run.name or "", "offline": run.offline})
        run.finish()

    def ranks(result, key):
        return [result.rank_metrics(rank)[0][key] for rank in (0, 1)]

    if __name__ == "__main__":
        own = wandb.init(project="own")
        logged = WandbLoggerCallback(
            project="digits", group="tries", excludes=["rank"], log_config=True, upload_checkpoints=True, tags=["mine"]
        )
        fit(loop, "logged run", logged, steps=3, rate=0.125)
        plain = WandbLoggerCallback(project="digits")
        failed = told(lambda: fit(loop, "broken", plain, steps=1, fails=True))
        fit(loop, "plain", plain, steps=1)
        one = fit(within, "one", rank_zero_only=True)
        both = fit(within, "both", rank_zero_only=False)
        used, init = [], wandb.init

        def noting(**options):
            run = init(**options)
            used.append(run.settings.api_key)
            return run

        wandb.init = noting
        secret = open("key").read().strip()
        fit(loop, "api_key", WandbLoggerCallback(project="digits", api_key=secret), steps=1)
        fit(loop, "api_key_file", WandbLoggerCallback(project="digits", api_key_file="key"), steps=1)
        print("RESULT" + json.dumps({
            "own": wandb.run is own, "failed": failed, "used": used,
            "one": [ranks(one, "name")[0], ranks(one, "offline")], "both": ranks(both, "name"),
            "unreadable": told(lambda: WandbLoggerCallback(api_key_file="/no/such")),
            "twice": told(lambda: setup_wandb(api_key="a", api_key_file="b")),
            "environment": secret in "".join(os.environ.values()),
        }))
    """
)
SECRET = "local-" + "5e" * 20


@pytest.fixture(scope="module")
def wandb(shared_scripts: Scripts) -> dict[str, Any]:
    shared_scripts.write(SECRET + "\n", "key")
    return outcome(shared_scripts.run(WANDB, WANDB_MODE="offline", WANDB_SILENT="true"))


def written(scripts: Scripts, name: str) -> list[bytes]:
    """What `wandb sync` would send for each of a run's own."""
    return [file.read_bytes() for file in sorted((scripts.storage / name).glob("wandb/offline-run-*/run-*.wandb"))]


@pytest.mark.usefixtures("wandb")
def test_wandb_has_the_config_and_the_reports_of_rank_0_in_the_runs_directory(shared_scripts: Scripts) -> None:
    (data,) = written(shared_scripts, "logged run")
    for text in (b"digits", b"tries", b"logged run", b"mine", b"rate", b"nested/a(b)", b"config/rate", b"note"):
        assert text in data, text
    assert data.count(b"checkpoint_logged_run") >= 3, "a version of the artifact for each checkpoint"
    assert json.loads(re.findall(rb'"?loss"?\W*?(0\.3\d+)', data)[-1]) == pytest.approx(1 / 3)
    # The field of a row is its length and its name.
    (plain,) = written(shared_scripts, "plain")
    assert b"\x04rank" in plain and b"\x04rank" not in data, "what is excluded is not written"
    assert b"config/" not in plain and b"checkpoint_plain" not in plain


def test_wandb_runs_of_one_driver_are_apart_and_a_failed_one_is_ended(
    shared_scripts: Scripts, wandb: dict[str, Any]
) -> None:
    kind, text = wandb["failed"]
    assert kind == "WorkerGroupError" and "ValueError: of the user" in text
    assert [len(written(shared_scripts, name)) for name in ("broken", "plain")] == [1, 1]
    assert wandb["own"], "the driver's own run is left alone"


def test_setup_wandb_logs_from_rank_0_and_is_disabled_on_the_others(
    shared_scripts: Scripts, wandb: dict[str, Any]
) -> None:
    assert wandb["one"] == ["one", [True, False]]
    (data,) = written(shared_scripts, "one")
    assert b"within" in data and b"loss" in data
    assert wandb["both"] == ["both-rank0", "both-rank1"] and len(written(shared_scripts, "both")) == 2


def test_a_key_comes_from_the_argument_or_a_file_and_is_written_nowhere(
    shared_scripts: Scripts, wandb: dict[str, Any]
) -> None:
    assert wandb["used"] == [SECRET, SECRET] and not wandb["environment"]
    for name in ("api_key", "api_key_file"):
        assert len(written(shared_scripts, name)) == 1
        files = [path for path in (shared_scripts.storage / name).rglob("*") if path.is_file()]
        assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    kind, text = wandb["unreadable"]
    assert (kind, text) == (
        "ConfigError",
        "`api_key_file` is `/no/such`, which cannot be read: No such file or directory",
    )
    assert wandb["twice"] == ["ConfigError", "`api_key` and `api_key_file` are both given\nhint: give one of them"]


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


SEARCH = """
    import mlflow, wandb
    from carril import tune
    from carril.integrations.mlflow import MLflowLoggerCallback
    from carril.integrations.wandb import WandbLoggerCallback

    def trial(config):
        for step in range(3):
            tune.report({"loss": config["rate"] + step})
        if config["rate"] == 3:
            raise ValueError("on purpose")

    if __name__ == "__main__":
        uri = os.environ["DATABASE"]
        callbacks = [MLflowLoggerCallback(uri, experiment_name="search"), WandbLoggerCallback(project="search")]
        run_config = tune.RunConfig(name="search", callbacks=callbacks, verbose=0)
        space = {"rate": tune.grid_search([1, 2, 3])}
        grid = tune.Tuner(trial, param_space=space, run_config=run_config).fit()
        client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.search_runs([client.get_experiment_by_name("search").experiment_id])
        print("RESULT" + json.dumps({
            run.data.params["rate"]: [
                run.info.status, [point.value for point in client.get_metric_history(run.info.run_id, "loss")]
            ]
            for run in found
        }))
"""


def test_each_trial_of_a_search_is_a_run_of_its_own(scripts: Scripts) -> None:
    database = f"sqlite:///{scripts.directory / 'mlflow.db'}"
    done = scripts.run(REPORTS + SEARCH, DATABASE=database, WANDB_MODE="offline", WANDB_SILENT="true")
    assert outcome(done) == {
        "1": ["FINISHED", [1.0, 2.0, 3.0]],
        "2": ["FINISHED", [2.0, 3.0, 4.0]],
        "3": ["FAILED", [3.0, 4.0, 5.0]],
    }
    sent = [file.read_bytes() for file in (scripts.storage / "search").glob("*/wandb/offline-run-*/run-*.wandb")]
    assert len(sent) == 3 and all(b"search" in data and b"loss" in data for data in sent)
