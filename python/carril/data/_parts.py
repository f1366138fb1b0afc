"""A data set cut into parts. A part is read from where the whole is read: nothing is held for it in memory.

But for what cannot be cut before it is made (functions that change the number of rows, limits, shuffles) and for strata.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carril.data._plan import Derived, Memory, Plan, Subset
from carril.data.context import DataContext
from carril.exceptions import ConfigError

if TYPE_CHECKING:
    from carril.data.dataset import Dataset


class Whole:
    """What is cut, with the rows of each of its units: they are counted once for all cuts."""

    def __init__(self, dataset: "Dataset") -> None:
        plan = dataset._plan
        is_cut_where_read = plan.keeps_rows and plan.limit is None and plan.shuffle == "none"
        self._source = dataset if is_cut_where_read else dataset.materialize()
        threads = DataContext.get_current().threads
        self._unit_rows = tuple(self._source._open().source.count(threads))
        self.rows = sum(self._unit_rows)

    def ranges(self, bounds: Sequence[int]) -> "list[Dataset]":
        return [self._part({"range": {"begin": begin, "end": end}}) for begin, end in itertools.pairwise(bounds)]

    def drawn(self, rows: int, seed: int) -> "tuple[Dataset, Dataset]":
        """So many rows by chance, behind all the others."""
        others, drawn = ({"chance": {"rows": rows, "seed": seed, "others": others}} for others in (True, False))
        return self._part(others), self._part(drawn)

    def _part(self, selection: dict[str, Any]) -> "Dataset":
        from carril.data.dataset import Dataset

        plan = self._source._plan
        made = Dataset(replace(plan, origin=Subset(plan.origin, selection, self._unit_rows)))
        # What is in memory is not held for each of its parts.
        return made.materialize() if isinstance(plan.origin, Memory | Derived) else made


def stratified(
    dataset: "Dataset", column: str, test_size: int | float, shuffle: bool, seed: int | None
) -> "tuple[Dataset, Dataset]":
    """Two parts in memory, in which each value of a column has its share."""
    from carril.data.dataset import MaterializedDataset

    whole = dataset._whole()
    if column not in whole.names:
        raise ConfigError(f"there is no column `{column}` to stratify by; there are {', '.join(whole.names)}")
    test = test_rows(test_size, len(whole))
    groups: dict[Any, list[int]] = {}
    for place, value in enumerate(whole.values(whole.names.index(column))):
        groups.setdefault(value, []).append(place)
    dice = random.Random(seed)
    train: list[int] = []
    tested: list[int] = []
    for places in groups.values():
        if shuffle:
            dice.shuffle(places)
        cut = len(places) - round(len(places) * test / max(len(whole), 1))
        train.extend(places[:cut])
        tested.extend(places[cut:])
    first, second = (MaterializedDataset(Plan(Memory((whole.take(sorted(part)),)))) for part in (train, tested))
    return first, second


def test_rows(test_size: int | float, rows: int) -> int:
    if isinstance(test_size, float):
        if not 0 < test_size < 1:
            raise ConfigError(f"`test_size={test_size}` is no part of a whole", hints=["a float lies between 0 and 1"])
        return round(rows * test_size)
    if not 0 < test_size < rows:
        raise ConfigError(f"`test_size={test_size}` does not leave rows for both: there are {rows}")
    return test_size
