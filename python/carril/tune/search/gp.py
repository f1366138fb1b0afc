"""Search with a Gaussian process, in the head: for a few hundred trials that each take long."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from carril.tune.search._native import NativeSearcher, checked_count

if TYPE_CHECKING:
    from carril.tune._space import Constants

__all__ = ["GPSearch"]


class GPSearch(NativeSearcher):
    """Suggests where the most improvement is expected. `n_startup` random configs come first."""

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_startup: int = 10,
        seed: Any = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._n_startup = checked_count("GPSearch", "n_startup", n_startup, 0)

    def _native_spec(self, constants: "Constants") -> dict[str, Any]:
        return {
            "gaussian_process": {
                "points_to_evaluate": [constants.add(point) for point in self._points],
                "seed": self._seed,
                **self._objective(),
                "n_startup": self._n_startup,
            }
        }
