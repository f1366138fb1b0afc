"""`Experiment`: the arguments of a search as an object, for `tune.run` and `tune.run_experiments`."""

from typing import Any


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
        self.name = name
        self.run = run
        self.arguments: dict[str, Any] = arguments

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {getattr(self.run, '__name__', self.run)!r})"
