"""`tune.run`: the older way to search, with one long list of arguments."""

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from carril._internal.spec import under_as_ray
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, of_another_ray
from carril.train._config import CheckpointConfig, FailureConfig, RunConfig
from carril.tune._config import ResumeConfig, TuneConfig
from carril.tune._experiment import Experiment
from carril.tune.trainable import with_resources

if TYPE_CHECKING:
    from carril.tune._plan import Resuming
    from carril.tune.analysis import ExperimentAnalysis, Trial

# What Ray's words for `resume` mean here: where to look is always the storage.
_PLACES = ("AUTO", "LOCAL", "REMOTE", "PROMPT")
_ERRORED = ("ERRORED", "ERRORED_ONLY")
_RESTARTED = ("RESTART_ERRORED", "RESTART_ERRORED_ONLY")


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: "int | float | datetime.timedelta | None" = None,
    config: dict[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: "str | os.PathLike[str] | None" = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | Mapping[str, Any] | None = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    log_to_file: Any = False,
    trial_name_creator: Callable[[Any], str] | None = None,
    trial_dirname_creator: Callable[[Any], str] | None = None,
    sync_config: Any = None,
    export_formats: Sequence[Any] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: Any = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    local_dir: "str | os.PathLike[str] | None" = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool | None = None,
    chdir_to_trial_dir: Any = None,
    **private: Any,
) -> "ExperimentAnalysis":
    """Searches to the end. Raises `TuneError` if a trial failed, unless `raise_on_failed_trial=False`."""
    if isinstance(run_or_experiment, Experiment):
        # What an experiment says of itself counts, given or not; the rest is the call's.
        given = {name: value for name, value in locals().items() if name not in ("run_or_experiment", "private")}
        return run(run_or_experiment.run, **{**given, **private, **run_or_experiment.arguments})
    for key in private:
        if not key.startswith("_"):
            raise ConfigTypeError(f"`tune.run()` has no argument `{key}`", hints=of_another_ray("run", key))
    if restore is not None or export_formats:
        raise NotAvailableError("`tune.run(restore=…, export_formats=…)` are not built")
    from carril.tune.tuner import Tuner

    trainable = run_or_experiment
    if resources_per_trial is not None:
        trainable = with_resources(trainable, resources_per_trial)
    checkpoints = _checkpoints(
        checkpoint_config, keep_checkpoints_num, checkpoint_score_attr, checkpoint_freq, checkpoint_at_end
    )
    tuner = Tuner(
        trainable,
        param_space=config or {},
        tune_config=TuneConfig(
            # Alone it only says what the analysis is about.
            metric=metric if mode is not None else None,
            mode=mode,
            search_alg=search_alg,
            scheduler=scheduler,
            num_samples=num_samples,
            max_concurrent_trials=max_concurrent_trials,
            time_budget_s=time_budget_s,
            reuse_actors=reuse_actors,
            trial_name_creator=trial_name_creator,
            trial_dirname_creator=trial_dirname_creator,
            chdir_to_trial_dir=chdir_to_trial_dir,
        ),
        run_config=RunConfig(
            name=name,
            storage_path=storage_path if storage_path is not None else local_dir,
            storage_filesystem=storage_filesystem,
            stop=stop,
            checkpoint_config=checkpoints,
            failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast),
            verbose=1 if verbose is None else int(verbose),
            progress_reporter=progress_reporter,
            log_to_file=log_to_file,
            sync_config=sync_config,
            callbacks=list(callbacks or []),
        ),
        _resuming=_resuming(resume, resume_config),
    )
    results = tuner.fit()
    from carril.tune.analysis import ExperimentAnalysis
    from carril.tune.error import TuneError

    if raise_on_failed_trial and results.num_errors:
        failed = [result.path for result in results if result.error is not None]
        raise TuneError(
            f"{len(failed)} of {len(results)} trials failed: {results.errors[0]}",
            hints=[f"`{failed[0]}` is the first one; `raise_on_failed_trial=False` returns the others' results"],
        )
    return ExperimentAnalysis(results, default_metric=metric, default_mode=mode)


def _resuming(resume: Any, config: ResumeConfig | None) -> "Resuming | None":
    from carril.tune._plan import Resuming

    if config is not None:
        kinds = ResumeConfig.ResumeType
        if config.finished != kinds.SKIP or config.unfinished == kinds.RESTART:
            raise NotAvailableError(
                "`ResumeConfig`: trials that finished are not run again, and unfinished ones go on from their checkpoints",
                hints=["`errored` may be `RESUME` or `RESTART`, `unfinished` `RESUME` or `SKIP`"],
            )
        return Resuming(
            config.unfinished == kinds.RESUME, config.errored == kinds.RESUME, config.errored == kinds.RESTART
        )
    if resume is None or isinstance(resume, bool):
        return Resuming() if resume else None
    words = set(resume.split("+")) if isinstance(resume, str) else set()
    if not words or not words <= {*_PLACES, *_ERRORED, *_RESTARTED}:
        known = ", ".join(f"{word!r}" for word in (*_PLACES, *_ERRORED, *_RESTARTED))
        raise ConfigError(
            f"`tune.run(resume={resume!r})`: it must be True, False or one of {known}, or several joined by `+`"
        )
    return Resuming(
        unfinished=not any(word.endswith("_ONLY") for word in words),
        errored=not words.isdisjoint(_ERRORED),
        restart_errored=not words.isdisjoint(_RESTARTED),
    )


def _checkpoints(
    given: Any, keep: int | None, attribute: str | None, frequency: int, at_end: bool | None
) -> CheckpointConfig:
    from carril.train._config import coerce

    _warn_of_older(
        keep_checkpoints_num=(keep, "num_to_keep"),
        checkpoint_score_attr=(attribute, "checkpoint_score_attribute"),
        checkpoint_freq=(frequency, "checkpoint_frequency"),
        checkpoint_at_end=(at_end, "checkpoint_at_end"),
    )
    if given is not None:
        return coerce(CheckpointConfig, given, "checkpoint_config")
    order = "min" if attribute is not None and attribute.startswith("min-") else "max"
    return CheckpointConfig(
        num_to_keep=keep,
        checkpoint_score_attribute=attribute.removeprefix("min-") if attribute is not None else None,
        checkpoint_score_order=order,
        checkpoint_frequency=frequency,
        checkpoint_at_end=at_end,
    )


def _warn_of_older(**arguments: tuple[Any, str]) -> None:
    """As Ray does of arguments that `CheckpointConfig` has by now."""
    import warnings

    for name, (value, newer) in arguments.items():
        if value and under_as_ray():
            text = f"`tune.run({name}=…)` is deprecated: use `CheckpointConfig({newer}=…)`"
            warnings.warn(text, DeprecationWarning, stacklevel=4)


def run_experiments(
    experiments: Any,
    scheduler: Any = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    resume: Any = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
) -> "list[Trial]":
    """Ray's way to run several experiments, from dicts by name or from `Experiment` objects. Returns the trials of all.

    They run one after the other, with or without `concurrent`: the trials of each share the machine.
    """
    options = {
        "scheduler": scheduler,
        "verbose": verbose,
        "progress_reporter": progress_reporter,
        "resume": resume,
        "resume_config": resume_config,
        "reuse_actors": reuse_actors,
        "raise_on_failed_trial": raise_on_failed_trial,
        "callbacks": callbacks,
    }
    if isinstance(experiments, Mapping):
        listed = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    else:
        listed = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    for one in listed:
        if not isinstance(one, Experiment):
            raise ConfigError(f"`run_experiments()` takes experiments, or a dict of them by name, not {one!r}")
    return [trial for one in listed for trial in run(one, **options).trials]
