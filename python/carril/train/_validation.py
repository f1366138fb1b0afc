"""The user's check of a checkpoint, beside the training: what `report` asks for, and what the process that checks does.

The head has the check done by a run of its own with one worker, whose function is `check`. What the user's function
returns is that run's only report, and joins the metrics of the checkpoint.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.train import _session
from carril.train._checkpoint import Checkpoint
from carril.train._config import coerce
from carril.train._more_config import ValidationConfig, ValidationTaskConfig

# What the head tells the process that checks.
_VARIABLE = "CARRIL_VALIDATION"

# The arguments of the user's function, and how long it may take.
Task = tuple[dict[str, Any], float | None]


def checked_config(given: object) -> ValidationConfig | None:
    """A trainer's `validation_config`."""
    if given is None:
        return None
    config = coerce(ValidationConfig, given, "validation_config")
    if not callable(config.fn):
        raise ConfigTypeError(
            f"`ValidationConfig.fn` is {kind_of(config.fn)}: it must be a function",
            hints=["it takes the checkpoint, and returns a dict of metrics"],
        )
    return config


def details_of(config: ValidationConfig | None) -> dict[str, Any]:
    """What is sent to the workers."""
    if config is None:
        return {}
    default = config.task_config or ValidationTaskConfig()
    return {"validation": (default.fn_kwargs, default.timeout_s)}


def asked(given: object, has_checkpoint: bool) -> Task | None:
    """What `report(validation=…)` asks for; None where it asks for nothing."""
    if given is None or given is False:
        return None
    if given is not True and not isinstance(given, ValidationTaskConfig):
        raise ConfigTypeError(f"`validation` is {kind_of(given)}: it must be True, False or a `ValidationTaskConfig`")
    if not has_checkpoint:
        raise ConfigError(
            "`report(validation=…)` without a checkpoint: there is nothing to validate",
            hints=["only ranks that report a checkpoint ask for its validation"],
        )
    default: Task | None = _session.details().get("validation")
    if default is None:
        raise ConfigError(
            "`report(validation=…)`: the trainer has no `validation_config`",
            hints=["give it `validation_config=ValidationConfig(fn=…)`"],
        )
    arguments, timeout_s = default
    if isinstance(given, ValidationTaskConfig):
        arguments, timeout_s = {**arguments, **given.fn_kwargs}, given.timeout_s
    return arguments, timeout_s


def as_native(task: Task | None) -> tuple[str, float | None] | None:
    """As it travels: the arguments as JSON."""
    if task is None:
        return None
    arguments, timeout_s = task
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"`ValidationTaskConfig.fn_kwargs[{name!r}]` is {kind_of(value)}: it must be plain data, as JSON has it"
                f" ({error})"
            ) from error
    return json.dumps(arguments), timeout_s


def check(function: Callable[..., Any]) -> None:
    """Runs in the process that checks."""
    told = json.loads(os.environ.pop(_VARIABLE))
    checkpoint = Checkpoint.stored(told["checkpoint"], _session.storage_filesystem())
    found = function(checkpoint, **json.loads(told["arguments"]))
    _session.report(checked_metrics(function, found))


def checked_metrics(function: Callable[..., Any], found: object) -> dict[str, Any]:
    """What the user's function has returned."""
    if not isinstance(found, dict):
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigTypeError(
            f"`{name}` returned {kind_of(found)}: `ValidationConfig.fn` must return a dict of metrics"
        )
    return found
