"""What a worker calls: one trial to its end, whatever form its trainable has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carril.tune.trainable import _class_form, _function_form
from carril.tune.trainable._names import name_of
from carril.tune.trainable.trainable import Trainable


@dataclass(frozen=True)
class TrialOptions:
    """How a trial is run, beside its config. The checkpoints are those of the class form: a function decides itself.

    `checkpoint_at_end=None` is True for a class that can save. With `reuse` its object is kept for the next trial.
    """

    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    reuse: bool = False


def run_trial(
    trainable: type[Trainable] | Callable[..., Any], config: dict[str, Any], options: TrialOptions | None = None
) -> None:
    """Runs one trial to its end, and returns also where it was told to pause or stop. What it raises is the user's."""
    options = TrialOptions() if options is None else options
    from carril.tune import _session

    try:
        if isinstance(trainable, type) and issubclass(trainable, Trainable):
            _class_form.run(trainable, config, options)
        else:
            _class_form.release()
            _function_form.run(trainable, config, name_of(trainable))
    except _session.TrialStopped:
        return
