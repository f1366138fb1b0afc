"""Helpers for the training function: the worker's device, a model and a data loader spread over the workers.

Torch is imported when one of them runs, not with this module.
"""

import os
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, kind_of
from carril.train import _session
from carril.train.torch import _shared_memory

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader


def get_devices() -> "list[torch.device]":
    """The devices of this worker, as torch numbers them; the CPU if it has no other."""
    session = _session.current("get_devices()")
    import torch

    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    if getattr(session, "is_local", False):
        return [torch.device("cuda", session.local_rank % torch.cuda.device_count())]
    if not session.devices:
        return [torch.device("cpu")]
    # Torch numbers the visible devices. All workers of a node see the devices of all of them.
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    numbers = [visible.index(device) for device in session.devices if device in visible]
    return [torch.device("cuda", number) for number in numbers or [session.local_rank]]


def get_device() -> "torch.device":
    """The first device of this worker."""
    return get_devices()[0]


def prepare_model(
    model: "torch.nn.Module",
    move_to_device: "bool | torch.device" = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> "torch.nn.Module":
    """Moves the model to the worker's device and, with several workers, wraps it in DDP or FSDP.

    After `accelerate(amp=True)` its forward pass runs in mixed precision.
    """
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ConfigError(f"`parallel_strategy` is {parallel_strategy!r}: it must be 'ddp', 'fsdp' or None")
    world_size = _session.current("prepare_model()").world_size
    import torch

    from carril.train.torch._amp import with_autocast

    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    model = with_autocast(model)
    if parallel_strategy is None or world_size == 1:
        return model
    options = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        if not torch.cuda.is_available():
            raise RuntimeError("`prepare_model(parallel_strategy='fsdp')` needs GPUs, and this worker has none")
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, **options)
    if device.type == "cuda":
        options = {"device_ids": [device], "output_device": device, **options}
    parallel = torch.nn.parallel.DistributedDataParallel(model, **options)
    _shared_memory.register(parallel, device)
    return parallel


def prepare_data_loader(
    data_loader: "DataLoader[Any]",
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> "DataLoader[Any]":
    """Gives every worker its part of the data, and moves batches to its device.

    With several workers the loader is rebuilt with a DistributedSampler, unless it has one already or reads an
    iterable dataset. Call `loader.sampler.set_epoch(epoch)` for another order in each epoch.
    """
    world_size = _session.current("prepare_data_loader()").world_size
    from torch.utils.data import DistributedSampler, IterableDataset

    distributed = isinstance(data_loader.sampler, DistributedSampler)
    if add_dist_sampler and world_size > 1 and not distributed and not isinstance(data_loader.dataset, IterableDataset):
        data_loader = _distributed(data_loader)
    from carril.train.torch._loader import DeviceLoader, shield

    shield(data_loader)
    if move_to_device:
        device = get_device()
        if device.type != "cpu":
            return DeviceLoader(data_loader, device, auto_transfer)
    return data_loader


def _distributed(loader: "DataLoader[Any]") -> "DataLoader[Any]":
    """The same loader with the part of this rank."""
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        raise ConfigError(
            f"the data loader has a batch sampler of its own, {kind_of(loader.batch_sampler)}, which cannot be "
            "split over workers",
            hints=["make it split by rank and pass `add_dist_sampler=False`"],
        )
    if not isinstance(loader.sampler, (RandomSampler, SequentialSampler)):
        import warnings

        warnings.warn(
            f"the data loader's {type(loader.sampler).__name__} is replaced by a DistributedSampler over the whole "
            "dataset; pass `add_dist_sampler=False` to keep it",
            stacklevel=3,
        )
    shuffle = not isinstance(loader.sampler, SequentialSampler)
    options: dict[str, Any] = {
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
        "multiprocessing_context": loader.multiprocessing_context,
        "persistent_workers": loader.persistent_workers,
    }
    if loader.num_workers > 0:
        options["prefetch_factor"] = loader.prefetch_factor
    if loader.batch_size is None:
        # Without batches of the loader's own the argument is refused, whatever its value.
        del options["drop_last"]
    return DataLoader(loader.dataset, sampler=DistributedSampler(_sized(loader), shuffle=shuffle), **options)


def _sized(loader: "DataLoader[Any]") -> Any:
    return loader.dataset


def enable_reproducibility(seed: int = 0) -> None:
    """Seeds torch, Python and numpy, and makes torch choose deterministic algorithms, at some cost in speed."""
    import random

    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # cuBLAS is deterministic only with a workspace of this kind.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
