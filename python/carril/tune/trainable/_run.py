"""What a worker calls: one trial to its end, whatever form its trainable has."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from carril.tune.trainable import _class_form, _function_form
from carril.tune.trainable._names import name_of
from carril.tune.trainable.trainable import Trainable


@dataclass(frozen=True)
class TrialOptions:
    """How a trial is run, beside its config. The checkpoints are those of the class form: a function decides itself.

    `checkpoint_at_end=None` is True for a class that can save. With `reuse` its object is kept for the next trial.
    `output_files` are two names in the trial's directory: what it prints is also in them.
    """

    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    reuse: bool = False
    output_files: tuple[str, str] | None = None


def run_trial(
    trainable: type[Trainable] | Callable[..., Any], config: dict[str, Any], options: TrialOptions | None = None
) -> None:
    """Runs one trial to its end, and returns also where it has to pause or stop. What it raises is the user's."""
    options = TrialOptions() if options is None else options
    from carril.tune import _session

    try:
        with _copied_output(options.output_files):
            if isinstance(trainable, type) and issubclass(trainable, Trainable):
                _class_form.run(trainable, config, options)
            else:
                _class_form.release()
                _function_form.run(trainable, config, name_of(trainable))
    except _session.TrialStopped:
        return


@contextlib.contextmanager
def _copied_output(names: tuple[str, str] | None) -> Iterator[None]:
    from carril.tune._session import trial_info

    trial = trial_info()
    if names is None or trial is None:
        yield
        return
    with contextlib.ExitStack() as files:
        # A trial that resumes writes on.
        kept = {
            name: files.enter_context(open(os.path.join(trial.directory, name), "a", encoding="utf-8", buffering=1))
            for name in dict.fromkeys(names)
        }
        files.enter_context(contextlib.redirect_stdout(_Both(sys.stdout, kept[names[0]])))
        files.enter_context(contextlib.redirect_stderr(_Both(sys.stderr, kept[names[1]])))
        yield


class _Both:
    """A stream whose text is in a file too."""

    def __init__(self, stream: Any, file: Any) -> None:
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        self._file.write(text)
        return int(self._stream.write(text))

    def flush(self) -> None:
        self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
