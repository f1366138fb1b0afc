"""The configurations of Ray's older generation (`ray.air.config`), as carril's own with the fields that only they had.

`RunConfig`, `FailureConfig` and `CheckpointConfig` are carril's: they know the older fields (`local_dir`, `verbose`,
`stop`, `sync_config`, `log_to_file`, `fail_fast`, …) and refuse what is not built when `fit()` begins.
`ScalingConfig` adds the two fields of a coordinator that carril does not have.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from carril.exceptions import NotAvailableError
from carril.train import CheckpointConfig, FailureConfig, RunConfig
from carril.train import ScalingConfig as _ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"]


@dataclass
class ScalingConfig(_ScalingConfig):
    """How many workers a run has, and what each of them reserves; with the older generation's fields."""

    _max_cpu_fraction_per_node: float | None = None

    unbuilt: ClassVar[dict[str, tuple[Any, str]]] = {
        **_ScalingConfig.unbuilt,
        "_max_cpu_fraction_per_node": (None, "shares of a node are"),
    }

    def refuse_unbuilt(self) -> None:
        super().refuse_unbuilt()
        # Ray's coordinator reserved one CPU by default, ours reserves nothing: up to that, nothing is lost.
        asked = {name: amount for name, amount in (self.trainer_resources or {}).items() if amount}
        if asked and not (set(asked) == {"CPU"} and asked["CPU"] <= 1):
            raise NotAvailableError(
                f"`ScalingConfig(trainer_resources={self.trainer_resources!r})` is not available:"
                " the process that coordinates a run reserves nothing",
                hints=["leave `trainer_resources` out, and ask for what the workers need in `resources_per_worker`"],
            )
