"""A trial in the class form: made or taken over, restored, stepped until somebody says stop, saved, cleaned up.

FORM-1: `cleanup` is called once for every object that was made, also if its trial failed.
FORM-2: an object is taken over by the next trial only if its own trial did not fail, it is of the same class, and its
  `reset_config` says so.
FORM-3: at most one checkpoint is made of an iteration.
"""

import atexit
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.tune.trainable import _saved
from carril.tune.trainable.trainable import Trainable

if TYPE_CHECKING:
    from carril.tune.trainable._run import TrialOptions

# The object of the last trial in this process, if workers are reused.
_kept: Trainable | None = None


def run(kind: type[Trainable], config: dict[str, Any], options: "TrialOptions") -> None:
    """Runs one trial to its end."""
    from carril.tune import _session

    _check(kind, options)
    info = _session.trial_info()
    trainable = _taken_over(kind, config, info) or _made(kind, config, info)
    try:
        _restore(trainable, info)
        _train(trainable, options)
    except BaseException:
        _clean_up_after_failure(trainable)
        raise
    if options.reuse:
        _keep(trainable)
    else:
        trainable.stop()


def release() -> None:
    """Cleans up the object that was kept for a next trial, if there is one."""
    global _kept
    kept, _kept = _kept, None
    if kept is not None:
        kept.stop()


def _keep(trainable: Trainable) -> None:
    global _kept
    _kept = trainable
    # Once is enough, and for the end of the process only.
    atexit.unregister(release)
    atexit.register(release)


def _taken_over(kind: type[Trainable], config: dict[str, Any], info: Any) -> Trainable | None:
    """The kept object, made ready for this trial; otherwise None, and the kept one is cleaned up."""
    global _kept
    if type(_kept) is not kind or kind.reset_config is Trainable.reset_config:
        release()
        return None
    kept, _kept = _kept, None
    try:
        kept._trial = info
        if kept.reset(config):
            return kept
    except BaseException:
        _clean_up_after_failure(kept)
        raise
    kept.stop()
    return None


def _made(kind: type[Trainable], config: dict[str, Any], info: Any) -> Trainable:
    trainable = kind.__new__(kind)
    # Before the constructor, which calls `setup`: that may ask for `self.trial_id`.
    trainable._trial = info
    try:
        kind.__init__(trainable, config)
    except BaseException:
        _clean_up_after_failure(trainable)
        raise
    return trainable


def _clean_up_after_failure(trainable: Trainable) -> None:
    """The failure is what the user has to see: one of `cleanup` is only printed."""
    try:
        trainable.stop()
    except Exception:
        import traceback

        traceback.print_exc()


def _restore(trainable: Trainable, info: Any) -> None:
    from carril.tune import _session

    checkpoint = _session.latest_checkpoint()
    if checkpoint is not None:
        otherwise = _saved.Counts(iteration=info.iteration, time_total_s=info.time_total_s)
        with checkpoint.as_directory() as directory:
            _saved.load(trainable, directory, otherwise)


def _train(trainable: Trainable, options: "TrialOptions") -> None:
    from carril.tune import _session

    at_end = _at_end(type(trainable), options)
    done = False
    while not done:
        result = trainable.train()
        done = bool(result["done"])
        iteration = trainable.iteration
        frequency = options.checkpoint_frequency
        saved = (frequency > 0 and iteration % frequency == 0) or (done and at_end)
        verdict = _session.report_trial(result, _checkpoint(trainable) if saved else None)
        if _is_to_save(trainable, verdict, at_end) and not saved:
            _session.report_trial(result, _checkpoint(trainable), silent=True)
        done = done or verdict in ("pause", "stop")


def _is_to_save(trainable: Trainable, verdict: str, at_end: bool) -> bool:
    if verdict == "pause":
        if not _saves(type(trainable)):
            raise ConfigError(
                f"`{type(trainable).__name__}` has no `save_checkpoint`, and the scheduler pauses trials",
                hints=["write `save_checkpoint` and `load_checkpoint`, or take a scheduler that only stops trials"],
            )
        return True
    return (verdict == "save" and _saves(type(trainable))) or (verdict == "stop" and at_end)


def _checkpoint(trainable: Trainable) -> Any:
    from carril.train._checkpoint import Checkpoint

    checkpoint = Checkpoint._temporary()
    _saved.write(trainable, checkpoint.path)
    return checkpoint


def _saves(kind: type[Trainable]) -> bool:
    return kind.save_checkpoint is not Trainable.save_checkpoint


def _at_end(kind: type[Trainable], options: "TrialOptions") -> bool:
    return _saves(kind) if options.checkpoint_at_end is None else options.checkpoint_at_end


def _check(kind: type[Trainable], options: "TrialOptions") -> None:
    asked = "checkpoint_frequency" if options.checkpoint_frequency else "checkpoint_at_end"
    if (options.checkpoint_frequency or options.checkpoint_at_end) and not _saves(kind):
        raise ConfigError(
            f"`CheckpointConfig({asked}=…)` asks for checkpoints, and `{kind.__name__}` has no `save_checkpoint`"
        )
