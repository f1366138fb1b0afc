"""Weights & Biases: a callback that logs a run from the driver, and a helper for use inside a worker.

Files of `wandb` go into the run's directory, unless `dir` says otherwise. With `WANDB_MODE=offline` nothing leaves the
machine; `wandb sync` sends it later.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.integrations._common import library, rank, run_directory, run_name
from carril.train._callbacks import UserCallback

if TYPE_CHECKING:
    from carril.train._callbacks import RunContext
    from carril.train._checkpoint import Checkpoint
    from carril.train._result import Result


def _wandb() -> Any:
    return library("wandb", "Weights & Biases")


class WandbLoggerCallback(UserCallback):
    """Logs a run's config and metrics to Weights & Biases, and with `upload_checkpoints=True` its checkpoints.

    The metrics are rank 0's. `excludes` names those that are left out; `log_config=True` adds the config to each row.
    What else is given goes to `wandb.init`.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        *,
        api_key: str | None = None,
        api_key_file: "str | os.PathLike[str] | None" = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        **kwargs: Any,
    ) -> None:
        _wandb()
        self.project = project
        self.group = group
        self.excludes = frozenset(excludes or ())
        self.log_config = log_config
        self.upload_checkpoints = upload_checkpoints
        self.kwargs = kwargs
        self._api_key = _key(api_key, api_key_file)
        self._api_key_file = api_key_file
        self._run: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # A run keeps its trainer for `restore`: the key is not written down with it.
        return {**vars(self), "_api_key": None, "_run": None}

    def on_start(self, run_context: "RunContext") -> None:
        options: dict[str, Any] = {
            "project": self.project,
            # The trials of a search stand together.
            "group": self.group or _experiment(run_context),
            "name": run_context.name,
            "config": dict(run_context.train_loop_config or {}),
            "dir": run_context.path or None,
            # The driver's own active run, and those of other trainers in this process, stay as they are.
            "reinit": "create_new",
        }
        key = self._api_key or _key(None, self._api_key_file)
        self._run = _wandb().init(**_with_key({**options, **self.kwargs}, key))

    def after_report(
        self, run_context: "RunContext", metrics: list[dict[str, Any]], checkpoint: "Checkpoint | None"
    ) -> None:
        from carril.train._result import flatten

        reported = {name: value for name, value in metrics[0].items() if name not in self.excludes}
        row = {name: value for name, value in flatten(reported).items() if name not in self.excludes}
        if self.log_config:
            row.update(flatten({"config": dict(run_context.train_loop_config or {})}))
        self._run.log({name: value for name, value in row.items() if _is_loggable(value)})

    def on_checkpoint(self, run_context: "RunContext", checkpoint: "Checkpoint", metrics: dict[str, Any]) -> None:
        if self.upload_checkpoints:
            name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in run_context.name)
            artifact = _wandb().Artifact(f"checkpoint_{name}", type="model")
            artifact.add_dir(checkpoint.path)
            self._run.log_artifact(artifact)

    def on_end(self, run_context: "RunContext", result: "Result") -> None:
        # A failure before the workers were there has no run to end.
        if self._run is not None:
            self._run.finish(exit_code=0 if result.error is None else 1)
            self._run = None


def _experiment(run_context: "RunContext") -> str | None:
    experiment = run_context.run_config.name
    return experiment if experiment != run_context.name else None


def setup_wandb(
    config: dict[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: "str | os.PathLike[str] | None" = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Begins a run of Weights & Biases in this worker and returns it. What else is given goes to `wandb.init`.

    With `rank_zero_only` the other ranks get a run that is disabled: it takes the same calls and does nothing.
    """
    wandb = _wandb()
    number = rank()
    if rank_zero_only and number != 0:
        return wandb.init(mode="disabled")
    options: dict[str, Any] = {"config": dict(config or {}), "dir": run_directory()}
    name = run_name()
    if name and rank_zero_only:
        options["name"] = name
    elif name:
        options.update(group=name, name=f"{name}-rank{number}")
    return wandb.init(**_with_key({**options, **kwargs}, _key(api_key, api_key_file)))


def _key(api_key: str | None, api_key_file: "str | os.PathLike[str] | None") -> str | None:
    """The key that was given, or None: then `wandb` looks for one itself."""
    if api_key_file is None:
        return api_key
    if api_key is not None:
        raise ConfigError("`api_key` and `api_key_file` are both given", hints=["give one of them"])
    path = os.path.expanduser(os.fspath(api_key_file))
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError as error:
        raise ConfigError(f"`api_key_file` is `{path}`, which cannot be read: {error.strerror}") from None


def _with_key(options: dict[str, Any], key: str | None) -> dict[str, Any]:
    if key is None:
        return options
    settings = options.get("settings")
    # In the settings, not in the environment: workers inherit that, and it shows in `/proc`.
    if settings is None or isinstance(settings, dict):
        return {**options, "settings": {**(settings or {}), "api_key": key}}
    settings.api_key = key
    return options


def _is_loggable(value: object) -> bool:
    """Numbers, texts, and the media types of `wandb` itself."""
    return isinstance(value, (bool, int, float, str)) or type(value).__module__.partition(".")[0] == "wandb"
