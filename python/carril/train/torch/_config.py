"""How torch is set up in a worker: the device, and the process group that the ranks meet in.

The store that they meet at is there already (see `carril._internal.torch_store`): here, as in a script written for
torchrun, the group is made from the environment.
"""

import gc
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from carril.exceptions import ConfigError
from carril.train import _session
from carril.train._more_config import BackendConfig
from carril.train.torch import _shared_memory

if TYPE_CHECKING:
    from carril.train._session import SessionLike


# Counts in torch's store the ranks that are through with `init_process_group`.
_JOINED = "carril/joined"


def _join(distributed: Any) -> None:
    distributed.distributed_c10d._get_default_store().add(_JOINED, 1)


def _wait_until_all_joined(distributed: Any, timeout_s: float) -> None:
    """A rank may be through with the function while another still connects to it: ended now, the group would break that one off.

    No rank waits for this before its function begins. One that never comes has failed, and the head ends the group.
    """
    import time

    store, world_size = distributed.distributed_c10d._get_default_store(), distributed.get_world_size()
    until, pause = time.monotonic() + timeout_s, 0.001
    # Zero where the user's function has made the group: it knows its own ranks.
    while 0 < store.add(_JOINED, 0) < world_size and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


@dataclass
class TorchConfig(BackendConfig):
    """The process group: `backend=None` is NCCL for workers with GPUs and Gloo for others.

    `cpu_allreduce="shared_memory"` has `prepare_model` average gradients on the CPU through memory that the workers share,
    instead of through Gloo. All of them must be on one host.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800
    cpu_allreduce: str = "gloo"

    share_devices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.init_method not in ("env", "tcp"):
            raise ConfigError(f"`TorchConfig.init_method` is {self.init_method!r}: it must be 'env' or 'tcp'")
        if not self.timeout_s > 0:
            raise ConfigError(f"`TorchConfig.timeout_s` is {self.timeout_s}: it must be above 0")
        _shared_memory.check(self.cpu_allreduce)

    def setup(self, session: "SessionLike") -> None:
        """Makes the process group. Without workers (`num_workers=0`) there is one only under torchrun."""
        from datetime import timedelta

        import torch

        from carril.train.torch._prepare import get_device

        device = get_device()
        _shared_memory.use(self.cpu_allreduce, self.timeout_s)
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", str(device))
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if getattr(session, "is_local", False):
            from carril.train._local import under_torchrun

            if not under_torchrun():
                return
        backend = self.backend or ("nccl" if device.type == "cuda" else "gloo")
        if "nccl" in backend and "TORCH_NCCL_BLOCKING_WAIT" not in os.environ:
            # A rank that waits for a dead one ends, and does not hang.
            os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
        torch.distributed.init_process_group(
            backend,
            init_method="env://",
            rank=session.rank,
            world_size=session.world_size,
            timeout=timedelta(seconds=self.timeout_s),
        )
        _join(torch.distributed)

    def teardown(self) -> None:
        """Ends the group after the function has returned. A failed worker leaves it: others may be stuck in it."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            _wait_until_all_joined(distributed, self.timeout_s)
            distributed.destroy_process_group()
            if getattr(_session.entered(), "is_local", False):
                # A model in a cycle of references holds the group; where both go with the interpreter, torch may end it with
                # SIGABRT. A worker leaves without that end.
                gc.collect()
