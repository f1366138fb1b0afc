"""The trainer for PyTorch: a DataParallelTrainer whose workers are in a process group."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from carril.train._config import RunConfig, ScalingConfig, coerce
from carril.train._trainer import DataParallelTrainer
from carril.train.torch._config import TorchConfig

if TYPE_CHECKING:
    from carril.train._checkpoint import Checkpoint
    from carril.train._more_config import DataConfig, ValidationConfig


class TorchTrainer(DataParallelTrainer):
    """Runs a function on workers that `torch.distributed` connects.

    Inside it, `carril.train.torch.prepare_model` and `prepare_data_loader` put a model and a data loader on the
    worker's device and spread them over the workers.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | Mapping[str, Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: "DataConfig | Mapping[str, Any] | None" = None,
        validation_config: "ValidationConfig | None" = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: "Checkpoint | None" = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=coerce(TorchConfig, torch_config, "torch_config"),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
