"""A data set cut into parts. A part is read from where the whole is read: nothing is held for it in memory.

But for what cannot be cut before it is made (functions that change the number of rows, limits, shuffles) and for strata.
"""

import hashlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carril.data._plan import Derived, Memory, Plan, Subset
from carril.data.context import DataContext
from carril.exceptions import ConfigError, NoColumnError

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


def streaming(
    dataset: "Dataset", test_size: float, split_type: str, column: str | None, seed: int | None
) -> "tuple[Dataset, Dataset]":
    """Two data sets: rows that are drawn and the others, or each row in one of them by the hash of a column."""
    if not isinstance(test_size, int | float) or not 0 < test_size < 1:
        raise ConfigError(f"`test_size={test_size!r}` is no part of a whole", hints=["it lies between 0 and 1"])
    if split_type not in ("random", "hash"):
        raise ConfigError(f"unknown `split_type` {split_type!r}: use 'random' or 'hash'")
    if split_type == "random":
        if column is not None:
            raise ConfigError('`hash_column` is for `split_type="hash"`')
        cut = dataset._cut()
        return cut.drawn(round(cut.rows * test_size), random.getrandbits(63) if seed is None else seed)
    if column is None:
        raise ConfigError('`split_type="hash"` wants a `hash_column`')
    if seed is not None:
        raise ConfigError('`seed` is for `split_type="random"`: a hash is the same each time')
    hashed = _ByHash(test_size, column)
    first, second = (dataset.filter(hashed, fn_kwargs={"tests": tests}) for tests in (False, True))
    return first, second


class _ByHash:
    """Whether a row is in one of two parts, by a hash of one of its values."""

    def __init__(self, test_size: float, column: str) -> None:
        self._test_size, self._column = test_size, column

    def __call__(self, row: dict[str, Any], tests: bool) -> bool:
        if self._column not in row:
            raise NoColumnError(f"there is no column `{self._column}` to split by; there are {', '.join(row)}")
        digest = hashlib.blake2b(repr(row[self._column]).encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "little") / (1 << 64) < self._test_size) == tests


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
