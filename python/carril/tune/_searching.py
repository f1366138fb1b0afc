"""A searcher that is asked in the driver: what it suggested, what it has heard, and how it resumes with another driver.

SEARCH-1: a suggestion is run once. What the journal has and the saved state has not is asked for again when a search goes
  on, and is then the trial that it became; what was suggested and never became a trial is given before anything new.
SEARCH-2: a searcher hears of the end of each trial, under the id with which it was asked.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.train._places import place
from carril.tune._stored import look_up
from carril.tune._trainers import merged
from carril.tune._values import encoded

if TYPE_CHECKING:
    from carril.tune._stored import StoredTrial

_STATE = "searcher-state.json"
_PICKLES = ("searcher-state-0.pkl", "searcher-state-1.pkl")
# A searcher is saved after so many times the time that it took to save it.
_SPARING = 20
# And after so long again where the disk refused it.
_AGAIN_S = 5.0


class Suggested(NamedTuple):
    """A config, and the id with which the searcher was asked for it."""

    id: str
    config: dict[str, Any]


class Searching:
    """One searcher and the trials of one experiment, in `directory`; None where that is not on this machine."""

    def __init__(
        self,
        searcher: Any,
        metric: Any,
        base: dict[str, Any],
        prefix: str,
        directory: str | None,
        warn: Callable[[str], None],
        space: str = "",
    ) -> None:
        """`space` in words: what a searcher knew of another one is not restored."""
        self._space = space
        self._searcher, self._metric, self._base, self._prefix = searcher, metric, base, prefix
        self._directory, self._warn = directory, warn
        # The ids of the trials that the searcher knows, and those whose end it has heard of.
        self._ids: dict[int, str] = {}
        self._heard: set[int] = set()
        self._asked: set[str] = set()
        # Suggestions that are no trials yet: on their way to the head, and left over.
        self._under_way: dict[int, Suggested] = {}
        self._spare: list[Suggested] = []
        # Trials of an earlier driver that the searcher does not know, by their configs.
        self._unknown: dict[str, list[StoredTrial]] = {}
        self._next_save = 0.0
        self._failed = False
        self._saves = 0

    def id_of(self, number: int) -> str | None:
        """Under which the searcher knows a trial."""
        return self._ids.get(number)

    def suggest(self, number: int) -> Any:
        """The config of the next trial; None for not now, or FINISHED."""
        if number in self._under_way:  # a head was lost before it could write it down
            return self._under_way[number].config
        suggested = self._spare.pop(0) if self._spare else self._ask(number)
        while isinstance(suggested, Suggested) and (trial := self._take_unknown(suggested.config)) is not None:
            self._is_trial(suggested, trial)
            suggested = self._ask(number)
        if not isinstance(suggested, Suggested):
            return suggested
        self._ids[number] = suggested.id
        self._under_way[number] = suggested
        self.save()
        return suggested.config

    def made(self, number: int) -> None:
        """The journal has the trial."""
        self._under_way.pop(number, None)

    def ended(
        self, number: int, trial_id: str, config: dict[str, Any], result: dict[str, Any] | None, failed: bool
    ) -> None:
        """A trial has ended: one that the searcher suggested, or one that it does not know."""
        self._heard.add(number)
        if number in self._ids:
            self._tell_end(self._ids[number], result, failed)
            return
        value = look_up(result or {}, self._metric) if isinstance(self._metric, str) else None
        if not isinstance(value, (int, float)):
            return
        try:
            self._searcher.add_evaluated_point(config, float(value), failed)
        except (NotImplementedError, ConfigError, ValueError) as error:
            # It cannot learn from what it did not suggest itself or its space has not, or the files know a value only by its text.
            name = type(self._searcher).__name__
            self._warn(f"`{name}` was not told of trial `{trial_id}`: {str(error).partition(chr(10))[0]}")

    def _tell_end(self, asked: str, result: dict[str, Any] | None, failed: bool) -> None:
        # By name, and only what there is: a searcher of the user's need not take the rest.
        if failed:
            self._searcher.on_trial_complete(asked, error=True)
        else:
            self._searcher.on_trial_complete(asked, result=result)

    def _ask(self, number: int) -> Any:
        asked = self._free_id(number)
        config = self._searcher.suggest(asked)
        if config is None or config == self._searcher.FINISHED:
            return config
        if not isinstance(config, dict):
            raise ConfigTypeError(
                f"`{type(self._searcher).__name__}.suggest` returned {kind_of(config)}: it must be a config"
            )
        self._asked.add(asked)
        return Suggested(asked, encoded(merged(self._base, config)))

    def _free_id(self, number: int) -> str:
        own = f"{self._prefix}_{number:05d}"
        asked, again = own, 0
        while asked in self._asked:
            again += 1
            asked = f"{own}_{again}"
        return asked

    # ---------------------------------------------------------------- what an earlier driver did

    def remember(self, trials: "Sequence[StoredTrial]") -> None:
        """Brings the searcher to where an earlier driver's was, whose trials these are."""
        self._restore({trial.number for trial in trials})
        for trial in trials:
            if trial.number not in self._ids:
                self._unknown.setdefault(_key(trial.made_as), []).append(trial)
        events = [(trial.made_at, trial, False) for trial in trials if trial.number not in self._ids]
        events += [(trial.ended_at, trial, True) for trial in trials if trial.is_over]
        goes_on = True
        for _, trial, is_end in sorted(events, key=lambda event: event[0]):
            if not is_end:
                goes_on = goes_on and self._suggest_again(trial)
            elif trial.number not in self._heard:
                self.ended(trial.number, trial.id, trial.config, trial.metrics, trial.status == "error")

    def _suggest_again(self, trial: "StoredTrial") -> bool:
        """False: it goes another way than before, and is not asked for what it suggested there."""
        if trial.number in self._ids:
            return True
        suggested = self._ask(trial.number)
        if not isinstance(suggested, Suggested):
            return False
        known = self._take_unknown(suggested.config)
        if known is None:
            self._spare.append(suggested)
            return False
        self._is_trial(suggested, known)
        return True

    def _take_unknown(self, config: dict[str, Any]) -> "StoredTrial | None":
        key = _key(config) if self._unknown else ""
        left = self._unknown.get(key)
        if left is None:
            return None
        trial = left.pop(0)
        if not left:
            del self._unknown[key]
        return trial

    def _is_trial(self, suggested: Suggested, trial: "StoredTrial") -> None:
        self._ids[trial.number] = suggested.id
        if trial.number in self._heard:
            self._tell_end(suggested.id, trial.metrics, trial.status == "error")

    # ---------------------------------------------------------------- what is kept

    def save(self, last: bool = False) -> None:
        """Keeps what the searcher knows, and of which trials that is: one file names the other, so that they fit together."""
        if self._directory is None or (not last and time.monotonic() < self._next_save):
            return
        began = time.monotonic()
        # The one that is named now stays until the next is.
        name = _PICKLES[self._saves % 2]
        target = os.path.join(self._directory, _STATE)
        try:
            self._searcher.save(os.path.join(self._directory, name))
            with open(f"{target}.part", "w", encoding="utf-8") as file:
                json.dump({"state": name, **self._state()}, file)
            os.replace(f"{target}.part", target)
        except Exception as error:
            # A disk that is full may have room later; what cannot be pickled never can.
            again = _AGAIN_S if isinstance(error, OSError) else float("inf")
            self._next_save = time.monotonic() + again
            if self._failed:
                return
            self._failed = True
            self._warn(
                f"`{type(self._searcher).__name__}` cannot be saved, and will know less if the experiment has to go on: "
                f"{type(error).__name__}: {error}"
            )
            return
        self._saves += 1
        self._failed = False
        self._next_save = time.monotonic() + _SPARING * (time.monotonic() - began)

    def _state(self) -> dict[str, Any]:
        left = [*self._spare, *self._under_way.values()]
        return {
            "space": self._space,
            "experiment": self._prefix,
            "suggested": sorted(self._ids.items()),
            "ended": sorted(self._heard),
            # Of the others nothing can be made again.
            "spare": [suggested for suggested in left if _is_plain(suggested.config)],
        }

    def _restore(self, made: set[int]) -> None:
        data = None if self._directory is None else place(self._directory).read(_STATE)
        if self._directory is None or data is None:
            return
        try:
            state = json.loads(data)
        except ValueError:
            # The trials say what was suggested; only what the searcher thought beyond that is lost.
            self._warn(
                f"`{os.path.join(self._directory, _STATE)}` is damaged: the searcher starts without what it had saved"
            )
            return
        # It would suggest from the space that it was saved with, or knows the trials of an earlier search in this directory.
        saved = state.get("space", self._space), state.get("experiment", self._prefix)
        if saved != (self._space, self._prefix):
            return
        self._searcher.restore(os.path.join(self._directory, state["state"]))
        self._saves = _PICKLES.index(state["state"]) + 1
        self._asked = {asked for _, asked in state["suggested"]} | {asked for asked, _ in state["spare"]}
        self._ids = {number: asked for number, asked in state["suggested"] if number in made}
        self._heard = set(state["ended"])
        trials = set(self._ids.values())
        self._spare = [Suggested(asked, config) for asked, config in state["spare"] if asked not in trials]


def _key(config: dict[str, Any]) -> str:
    """One config as the journal has it, or as it was suggested: what is no plain value is known by its text."""
    return json.dumps(config, sort_keys=True, default=repr)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
