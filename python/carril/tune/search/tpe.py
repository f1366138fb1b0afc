"""Search by Parzen estimators, in the head: no library, and any space."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from carril.tune.search._native import NativeSearcher, checked_count

if TYPE_CHECKING:
    from carril.tune._space import Constants

__all__ = ["TPESearch"]


class TPESearch(NativeSearcher):
    """Draws from where the good configs lie. Conditional spaces and whole numbers are modelled as they are.

    `n_startup` random configs come first; of `n_candidates` draws the best is suggested.
    """

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_startup: int = 10,
        n_candidates: int = 24,
        seed: Any = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._n_startup = checked_count("TPESearch", "n_startup", n_startup, 0)
        self._n_candidates = checked_count("TPESearch", "n_candidates", n_candidates, 1)

    def _native_spec(self, constants: "Constants") -> dict[str, Any]:
        return {
            "tpe": {
                "points_to_evaluate": [constants.add(point) for point in self._points],
                "seed": self._seed,
                **self._objective(),
                "n_startup": self._n_startup,
                "n_candidates": self._n_candidates,
            }
        }
