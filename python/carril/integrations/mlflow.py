"""MLflow: a callback that logs a run from the driver, and a helper that sets MLflow up inside a worker.

The callback uses MLflow's client and leaves the driver's own active run alone. What is reported is gathered and sent
in batches, so that a run with many reports does not wait for the tracking server at each of them.
"""

import re
import time
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.integrations._common import library, numbers, rank, run_name
from carril.train._callbacks import UserCallback

if TYPE_CHECKING:
    from carril.train._callbacks import RunContext
    from carril.train._checkpoint import Checkpoint
    from carril.train._result import Result

# MLflow's own limits for one request and for one value.
_METRICS_IN_A_BATCH = 1000
_PARAMS_IN_A_BATCH = 100
_LETTERS_OF_A_PARAM = 6000
_SECONDS_BETWEEN_BATCHES = 1.0


def _mlflow() -> Any:
    return library("mlflow", "MLflow")


class MLflowLoggerCallback(UserCallback):
    """Logs a run's config, metrics and, with `save_artifact=True`, its files to MLflow.

    The metrics are rank 0's, by number of the report. Without `experiment_name` it is MLflow's default experiment.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        _mlflow()
        self.tracking_uri = tracking_uri
        self.registry_uri = registry_uri
        self.experiment_name = experiment_name
        self.tags = dict(tags or {})
        self.save_artifact = save_artifact
        self.log_params_on_trial_end = log_params_on_trial_end
        self._tracking_token = tracking_token
        self._client: Any = None
        self._run_id = ""
        self._step = 0
        self._waiting: list[Any] = []
        self._sent = 0.0

    def on_start(self, run_context: "RunContext") -> None:
        mlflow = _mlflow()
        _use_token(self._tracking_token)
        self._client = mlflow.MlflowClient(tracking_uri=self.tracking_uri, registry_uri=self.registry_uri)
        experiment = _experiment_id(self._client, self.experiment_name or _default_experiment(), create=True)
        tags = {name: str(value) for name, value in self.tags.items()}
        self._run_id = self._client.create_run(experiment, tags=tags, run_name=run_context.name).info.run_id
        self._step, self._waiting, self._sent = 0, [], time.monotonic()
        if not self.log_params_on_trial_end:
            self._log_params(run_context)

    def after_report(
        self, run_context: "RunContext", metrics: list[dict[str, Any]], checkpoint: "Checkpoint | None"
    ) -> None:
        from mlflow.entities import Metric  # type: ignore[import-not-found,unused-ignore]

        self._step += 1
        now = int(time.time() * 1000)
        for name, value in numbers(metrics[0]).items():
            self._waiting.append(Metric(_key(name), float(value), now, self._step))
        if len(self._waiting) >= _METRICS_IN_A_BATCH or time.monotonic() - self._sent > _SECONDS_BETWEEN_BATCHES:
            self._send()

    def on_end(self, run_context: "RunContext", result: "Result") -> None:
        # A failure before the workers were there has no run to end.
        if not self._run_id:
            return
        self._send()
        if self.log_params_on_trial_end:
            self._log_params(run_context)
        if self.save_artifact:
            self._client.log_artifacts(self._run_id, run_context.path)
        self._client.set_terminated(self._run_id, "FINISHED" if result.error is None else _status(result.error))
        self._run_id = ""

    def _log_params(self, run_context: "RunContext") -> None:
        from mlflow.entities import Param  # type: ignore[import-not-found,unused-ignore]

        given = [Param(name, value) for name, value in _params(run_context.train_loop_config or {}).items()]
        for first in range(0, len(given), _PARAMS_IN_A_BATCH):
            self._client.log_batch(self._run_id, params=given[first : first + _PARAMS_IN_A_BATCH])

    def _send(self) -> None:
        waiting, self._waiting, self._sent = self._waiting, [], time.monotonic()
        for first in range(0, len(waiting), _METRICS_IN_A_BATCH):
            self._client.log_batch(self._run_id, metrics=waiting[first : first + _METRICS_IN_A_BATCH])


def setup_mlflow(
    config: dict[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Begins an MLflow run in this worker and returns the module `mlflow`.

    With `rank_zero_only` the other ranks get an object that takes the same calls and does nothing.
    """
    mlflow = _mlflow()
    if rank_zero_only and rank() != 0:
        return _Silent()
    _use_token(tracking_token)
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    if experiment_id is None:
        name = experiment_name or _default_experiment()
        create = create_experiment_if_not_exists or experiment_name is None
        experiment_id = _experiment_id(mlflow.MlflowClient(), name, create, artifact_location)
    mlflow.set_experiment(experiment_id=experiment_id)
    mlflow.start_run(run_name=run_name or _name_of_the_run(), tags=tags)
    if config:
        mlflow.log_params(_params(config))
    return mlflow


class _Silent:
    """Stands for `mlflow` on ranks that do not log: every call is taken and does nothing."""

    def __getattr__(self, name: str) -> "_Silent":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> "_Silent":
        return self

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *args: object) -> None:
        return


def _name_of_the_run() -> str | None:
    name, number = run_name(), rank()
    return f"{name}-rank{number}" if name and number else name


def _default_experiment() -> str:
    import os

    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"


def _experiment_id(client: Any, name: str, create: bool, artifact_location: str | None = None) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    if not create:
        raise ConfigError(
            f"MLflow has no experiment named `{name}`",
            hints=["`create_experiment_if_not_exists=True` makes it"],
        )
    try:
        return str(client.create_experiment(name, artifact_location=artifact_location))
    except Exception:
        # Another process may have made it in between.
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)


def _use_token(token: str | None) -> None:
    if token:
        import os

        os.environ["MLFLOW_TRACKING_TOKEN"] = token


def _key(name: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


def _params(config: dict[str, Any]) -> dict[str, str]:
    from carril.train._result import flatten

    return {_key(str(name)): str(value)[:_LETTERS_OF_A_PARAM] for name, value in flatten(config).items()}


def _status(error: BaseException) -> str:
    from carril.exceptions import AbortedError

    return "KILLED" if isinstance(error, (AbortedError, KeyboardInterrupt)) else "FAILED"
