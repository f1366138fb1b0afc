"""`Trainer`: the trainer of older Ray scripts, which names its framework by a word and its workers by a number."""

from collections.abc import Callable, Mapping
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of
from carril.train._config import RunConfig, ScalingConfig
from carril.train._more_config import BackendConfig
from carril.train._trainer import DataParallelTrainer

_LATER = ("horovod", "jax", "lightgbm", "tensorflow", "xgboost")
_KNOWN = ("torch", *_LATER)


class Trainer(DataParallelTrainer):
    """Runs functions on a number of workers, one `run()` after the other.

    `backend` is "torch", a `BackendConfig`, or None for no framework. The workers are described by `num_workers`,
    `use_gpu` and `resources_per_worker`, or by a `scaling_config`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        *,
        backend: str | BackendConfig | None = None,
        num_workers: int | None = None,
        use_gpu: bool | None = None,
        resources_per_worker: dict[str, float] | None = None,
        train_loop_config: dict[str, Any] | None = None,
        scaling_config: ScalingConfig | Mapping[str, Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(train_loop_per_worker, (str, BackendConfig)):
            raise ConfigTypeError(
                f"`train_loop_per_worker` is {kind_of(train_loop_per_worker)}: it must be a function",
                hints=["name the framework as `backend=…`"],
            )
        named = {"num_workers": num_workers, "use_gpu": use_gpu, "resources_per_worker": resources_per_worker}
        given = {name: value for name, value in named.items() if value is not None}
        if given and scaling_config is not None:
            raise ConfigError(
                f"`Trainer` has `scaling_config` and `{next(iter(given))}`", hints=["put all of it in `scaling_config`"]
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=_backend_config(backend),
            scaling_config=given if scaling_config is None else scaling_config,
            run_config=run_config,
        )


def _backend_config(backend: object) -> BackendConfig | None:
    if backend is None or isinstance(backend, BackendConfig):
        return backend
    if not isinstance(backend, str):
        raise ConfigTypeError(f"`backend` is {kind_of(backend)}: it must be a name or a `BackendConfig`")
    if backend == "torch":
        from carril.train.torch._config import TorchConfig

        return TorchConfig()
    if backend in _LATER:
        raise NotAvailableError(
            f"`backend={backend!r}`: this framework is not built yet", hints=["`backend='torch'` is"]
        )
    raise ConfigError(
        f"`backend` is {backend!r}: it must be one of {', '.join(repr(name) for name in _KNOWN)}",
        hints=[f"{', '.join(repr(name) for name in _LATER)} come later"],
    )
