"""`Experiment`: the arguments of a search as an object, for `tune.run` and `tune.run_experiments`."""

from collections.abc import Mapping
from typing import Any

from carril.tune.error import TuneError
from carril.tune.trainable import check_trainable


class Experiment:
    """A search by its name, its trainable, and what else `tune.run` takes for it."""

    def __init__(
        self,
        name: str,
        run: Any,
        *,
        stop: Any = None,
        time_budget_s: Any = None,
        config: dict[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: Any = None,
        storage_filesystem: Any = None,
        sync_config: Any = None,
        checkpoint_config: Any = None,
        trial_name_creator: Any = None,
        trial_dirname_creator: Any = None,
        log_to_file: Any = False,
        export_formats: Any = None,
        max_failures: int = 0,
        restore: str | None = None,
        local_dir: Any = None,
    ) -> None:
        arguments = dict(locals())
        del arguments["self"], arguments["run"]
        check_trainable(run)
        self.name = name
        self.run = run
        self.arguments: dict[str, Any] = arguments

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> "Experiment":
        """From a dict of these arguments; `env` is for the config."""
        arguments = dict(spec)
        if "run" not in arguments:
            raise TuneError(f"the experiment `{name}` has no `run`: it must name what is tuned")
        if "env" in arguments:
            arguments["config"] = {**arguments.get("config", {}), "env": arguments.pop("env")}
        for older, newer in (("checkpoint_freq", "checkpoint_frequency"), ("checkpoint_at_end", "checkpoint_at_end")):
            if older in arguments:
                checkpoints = dict(arguments.get("checkpoint_config") or {})
                arguments["checkpoint_config"] = {**checkpoints, newer: arguments.pop(older)}
        try:
            return cls(name, **arguments)
        except TypeError as error:
            raise TuneError(f"the experiment `{name}` cannot be made: {error}") from None

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {getattr(self.run, '__name__', self.run)!r})"
