"""Gradients on the CPU through memory that the workers of a host share: a communication hook for DDP.

It does what DDP does without a hook, with the same bits on two ranks: every gradient is multiplied by `1 / world size` and
then summed. Where every worker has a core to spare, a thread does it, bucket after bucket, while the backward pass goes on. Where
not, the backward pass waits for each bucket: threads of several ranks that take the cores from each other and from the
pass, and yet need each other for every step, took more than twice as long.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.train import _group, _session

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel

_WAYS = ("gloo", "shared_memory")

# How long a bucket may wait for other ranks, where the run's `TorchConfig` asks for the hook.
_timeout_s: float | None = None


def check(way: str) -> None:
    """An error if there is no such way for gradients on the CPU."""
    if way not in _WAYS:
        raise ConfigError(f"`TorchConfig.cpu_allreduce` is {way!r}: it must be 'gloo' or 'shared_memory'")


def use(way: str, timeout_s: float) -> None:
    """From here on `prepare_model` registers the hook, or does not."""
    global _timeout_s
    _timeout_s = timeout_s if way == "shared_memory" else None


def register(model: "DistributedDataParallel", device: "torch.device") -> None:
    """Has the model's gradients averaged through shared memory, if the run's configuration asks for it."""
    if _timeout_s is None:
        return
    if device.type != "cpu":
        raise ConfigError(f"`TorchConfig(cpu_allreduce='shared_memory')` is for models on the CPU, not on `{device}`")
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and str(parameter.dtype) not in ("torch.float32", "torch.float64"):
            raise ConfigError(
                "`TorchConfig(cpu_allreduce='shared_memory')` is for parameters of float32 and float64, and "
                f"`{name}` is of {parameter.dtype}"
            )
    session = _session.current("prepare_model()")
    # Torch refuses a function whose annotations are not its own classes: this one has none.
    model.register_comm_hook(_Average(session, _timeout_s), lambda average, bucket: average.start(bucket.buffer()))


class _Average:
    """The group that one model's gradients go through, apart from the one of the function, and its thread, if it has one."""

    def __init__(self, session: _session.SessionLike, timeout_s: float) -> None:
        self._group = _group.made(session, "prepare_model()")
        self._timeout_s = timeout_s
        is_spare = len(os.sched_getaffinity(0)) >= 2 * session.local_world_size
        self._thread = ThreadPoolExecutor(1, "carril-gradients") if is_spare else None

    def start(self, gradients: "torch.Tensor") -> "torch.futures.Future[torch.Tensor]":
        """Averages the gradients in place."""
        import torch

        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if self._thread is None:
            self._run(gradients, future)
        else:
            self._thread.submit(self._run, gradients, future)
        return future

    def _run(self, gradients: "torch.Tensor", future: Any) -> None:
        try:
            kind = _group.kind(gradients, "prepare_model()")
            self._group.all_reduce(kind, _group.place(gradients), "scaled sum", self._timeout_s)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(gradients)
