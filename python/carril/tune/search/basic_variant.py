"""Grids and chance: the search where no other is asked for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from carril.tune.search._native import NativeSearcher, checked_count

if TYPE_CHECKING:
    from carril.tune._space import Constants

__all__ = ["BasicVariantGenerator"]


class BasicVariantGenerator(NativeSearcher):
    """Every combination of the grids, `num_samples` times, and random values for the rest.

    With `constant_grid_search` the combinations of one sample share their random values. `max_concurrent=0` is no limit.
    """

    learns: ClassVar[bool] = False

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(points_to_evaluate=points_to_evaluate, seed=random_state)
        self.max_concurrent = checked_count("BasicVariantGenerator", "max_concurrent", max_concurrent, 0)
        self._constant_grid_search = bool(constant_grid_search)

    def _native_spec(self, constants: "Constants") -> dict[str, Any]:
        spec = {
            "basic": {
                "points_to_evaluate": [constants.add(point) for point in self._points],
                "constant_grid_search": self._constant_grid_search,
                "seed": self._seed,
            }
        }
        if self.max_concurrent == 0:
            return spec
        return {"limited": {"searcher": spec, "max_concurrent": self.max_concurrent, "batch": False}}
