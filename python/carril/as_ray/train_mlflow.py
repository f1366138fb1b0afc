"""`ray.train.callbacks.MLflowLoggerCallback` of Ray 1.x: carril's own, with the parameters of that time."""

import os
from typing import TYPE_CHECKING, Any

from carril.integrations import mlflow as _mlflow

if TYPE_CHECKING:
    from carril.train import Checkpoint, RunContext

__all__ = ["MLflowLoggerCallback"]


class MLflowLoggerCallback(_mlflow.MLflowLoggerCallback):
    """Logs one worker's results; without a `tracking_uri` into `mlruns` in the run's directory, or in `logdir`."""

    def __init__(
        self,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        experiment_id: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        save_artifact: bool = False,
        logdir: str | os.PathLike[str] | None = None,
        worker_to_log: int = 0,
    ) -> None:
        super().__init__(
            tracking_uri,
            registry_uri=registry_uri,
            experiment_name=experiment_name,
            tags=tags,
            save_artifact=save_artifact,
        )
        self.experiment_id = experiment_id
        self.logdir = logdir
        self._worker = worker_to_log

    def on_start(self, run_context: "RunContext") -> None:
        place = os.path.join(os.fspath(self.logdir or run_context.path), "mlruns")
        self.tracking_uri = self.tracking_uri or place
        self.registry_uri = self.registry_uri or place
        if self.experiment_id is not None:
            import mlflow

            client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
            self.experiment_name = client.get_experiment(self.experiment_id).name
        super().on_start(run_context)

    def after_report(
        self, run_context: "RunContext", metrics: list[dict[str, Any]], checkpoint: "Checkpoint | None"
    ) -> None:
        super().after_report(run_context, [metrics[self._worker]], checkpoint)
