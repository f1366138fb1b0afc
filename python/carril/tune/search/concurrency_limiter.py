"""Lets only so many trials of a searcher run at a time.

LIMIT-1: at most `max_concurrent` trials that were suggested have not ended.
LIMIT-2: in batches, the searcher hears how its trials ended when all of the batch have, in the order in which they did, and
  suggests nothing in between beyond the batch.
"""

from typing import TYPE_CHECKING, Any

from carril.tune.search._native import checked_count
from carril.tune.search._wrapper import Wrapper
from carril.tune.search.searcher import Searcher

if TYPE_CHECKING:
    from carril.tune._space import Constants

__all__ = ["ConcurrencyLimiter"]


class ConcurrencyLimiter(Wrapper):
    """At most `max_concurrent` trials at a time; with `batch=True` the searcher learns only from whole batches."""

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        self.max_concurrent = checked_count("ConcurrencyLimiter", "max_concurrent", max_concurrent, 1)
        self.batch = bool(batch)
        self.live_trials: set[str] = set()
        # Trials of the batch that have ended, for when all have.
        self._ended: list[tuple[str, dict[str, Any] | None, bool]] = []

    def suggest(self, trial_id: str) -> Any:
        if len(self.live_trials) + len(self._ended) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if suggestion is not None and suggestion != Searcher.FINISHED:
            self.live_trials.add(trial_id)
        return suggestion

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self.live_trials:
            self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self.live_trials:
            return
        self.live_trials.remove(trial_id)
        if not self.batch:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        self._ended.append((trial_id, result, error))
        if not self.live_trials:
            ended, self._ended = self._ended, []
            for one, last, failed in ended:
                self.searcher.on_trial_complete(one, result=last, error=failed)

    def _spec(self, constants: "Constants") -> dict[str, Any]:
        spec = self._inner_spec(constants)
        return {"limited": {"searcher": spec, "max_concurrent": self.max_concurrent, "batch": self.batch}}
