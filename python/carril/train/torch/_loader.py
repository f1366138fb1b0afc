"""What a data loader gets from us: batches that are on the worker's device, and processes that a preemption spares.

On a GPU the next batch is copied on a stream of its own while the current one is used. A scheduler that takes the
machine may signal every process of the job: those of a loader would die of it, and the rank with them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader


class DeviceLoader(DataLoader[Any]):
    """Another loader, seen through `to(device)`."""

    _loader: DataLoader[Any]
    _device: torch.device
    _ahead: bool

    def __init__(self, loader: DataLoader[Any], device: torch.device, auto_transfer: bool) -> None:
        # A DataLoader for `isinstance` and with all attributes of the one it wraps, without a second set of workers.
        self.__dict__.update(loader.__dict__)
        self.__dict__["_loader"] = loader
        self.__dict__["_device"] = device
        self.__dict__["_ahead"] = auto_transfer and device.type == "cuda"

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self._copied_ahead() if self._ahead else map(self._move, self._loader)

    def _move(self, batch: Any) -> Any:
        return move(batch, self._device)

    def _copied_ahead(self) -> Iterator[Any]:
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self._device)
        ready: Any = None
        waiting = False
        for batch in self._loader:
            with torch.cuda.stream(stream):
                moved = move(batch, self._device)
            if waiting:
                yield ready
            current.wait_stream(stream)
            # The memory belongs to the copying stream: it must not be reused while the computing one reads it.
            _record(moved, current)
            ready, waiting = moved, True
        if waiting:
            yield ready


class ShieldedStart:
    """What the loader's processes call first: the user's own function, in a process that only its parent can end.

    torch has a handler of its own by then, which lets nobody else's SIGTERM pass. It stays for the parent's.
    """

    def __init__(self, own: Callable[[int], Any] | None) -> None:
        self._own = own

    def __call__(self, number: int) -> None:
        from carril._native import shield_from_preemption

        shield_from_preemption()
        if self._own is not None:
            self._own(number)


def shield(loader: DataLoader[Any]) -> None:
    """The processes that this loader starts from here on outlive the signals of a scheduler."""
    if loader.num_workers > 0 and not isinstance(loader.worker_init_fn, ShieldedStart):
        loader.worker_init_fn = ShieldedStart(loader.worker_init_fn)


def move(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch


def _record(batch: Any, stream: Any) -> None:
    if isinstance(batch, torch.Tensor):
        batch.record_stream(stream)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            _record(value, stream)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            _record(value, stream)
