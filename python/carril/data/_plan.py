"""What a data set is: where its rows come from, and what becomes of them. Nothing is read before somebody asks.

PLAN-1: a plan never changes: a transform makes another one.
PLAN-2: what a plan gives is the same each time, if the functions in it are, but for the order of an epoch.
"""

import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from carril._native import Block, Source, Stream, Transform
from carril.data import _convert, _filesystem
from carril.data._functions import Operation
from carril.data._pool import Pool
from carril.data.context import DataContext

_logger = logging.getLogger("carril.data")


@dataclass(frozen=True)
class Read:
    """Files, or numbers in a row: what the native half opens."""

    spec: dict[str, Any]
    name: str
    # In which the files are, pickled: it may hold keys.
    filesystem: bytes | None = field(default=None, repr=False)

    def open(self, keep: list[Any]) -> Source:
        """The source, which needs what it puts into `keep` as long as it is read."""
        if self.filesystem is None:
            return Source.open(json.dumps(self.spec))
        file, how = _filesystem.opened(self.filesystem)
        keep.append(file)
        return Source.open(json.dumps({**self.spec, "files": {**self.spec["files"], "filesystem": how}}))

    @property
    def reads_columns(self) -> bool:
        """Whether a reader that gets a list of columns reads less. One that has a list is left as it is."""
        return self.spec["format"] == "parquet" and not {"columns", "filter"} & {*self.spec["options"]}

    def with_columns(self, names: list[str]) -> "Read":
        return replace(self, spec={**self.spec, "options": {**self.spec["options"], "columns": names}})


@dataclass(frozen=True)
class Memory:
    """Blocks that are there."""

    blocks: tuple[Block, ...]
    name: str = "memory"

    def open(self) -> Source:
        return Source.of_blocks(list(self.blocks))


@dataclass(frozen=True)
class Derived:
    """Blocks that are made when they are first asked for."""

    make: Callable[[], Sequence[Block]]
    name: str

    def open(self) -> Source:
        return Source.of_blocks(list(self.make()))


@dataclass(frozen=True)
class Subset:
    """Some of the rows of another origin: a range of them, or some by chance, or all the others."""

    origin: "Read | Memory | Derived | Union | Subset"
    selection: dict[str, Any]
    # Of each unit of the origin.
    rows: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"part of {self.origin.name}"


@dataclass(frozen=True)
class Union:
    """The rows of one plan behind those of another. All have the columns of `empty`."""

    parts: "tuple[Plan, ...]"
    empty: Block
    name: str = "union"


@dataclass(frozen=True)
class Columns:
    """`{"select": […]}`, `{"drop": […]}` or `{"rename": [[there, here], …]}`."""

    spec: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    origin: Read | Memory | Derived | Union | Subset
    steps: tuple[Columns | Operation, ...] = ()
    shuffle: str = "none"
    # Of the shuffle; nothing: another one for each pass.
    seed: int | None = None
    limit: int | None = None

    def then(self, step: Columns | Operation) -> "Plan":
        return replace(self, steps=(*self.steps, step))

    @property
    def name(self) -> str:
        """For people."""
        facts = [self.origin.name, *(f"{one.method}({one.name})" for one in self.operations)]
        if self.shuffle != "none":
            facts.append("random_shuffle" if self.shuffle == "rows" else "randomize_block_order")
        if self.limit is not None:
            facts.append(f"limit({self.limit})")
        return " -> ".join(facts)

    @property
    def operations(self) -> list[Operation]:
        return [step for step in self.steps if isinstance(step, Operation)]

    @property
    def batch(self) -> int:
        """How many rows functions get at least together."""
        return max((operation.batch_size or 1 for operation in self.operations), default=1)

    @property
    def is_repartitioned(self) -> bool:
        """Nothing comes behind a `repartition`: its blocks are the ones that the user asked for."""
        return self == Plan(self.origin) and isinstance(self.origin, Derived) and self.origin.name == "repartition"

    @property
    def renames(self) -> bool:
        return any(isinstance(step, Columns) and "rename" in step.spec for step in self.steps)

    @property
    def keeps_rows(self) -> bool:
        return all(operation.keeps_rows for operation in self.operations)


@dataclass
class Opened:
    """A plan with its source open and its processes started: they are used by every pass, and end with this object."""

    plan: Plan
    source: Source = field(init=False)
    _parts: "list[Opened]" = field(default_factory=list)
    _kept: list[Any] = field(default_factory=list)
    _transforms: list[Transform] | None = None
    _pools: list[Pool] = field(default_factory=list)

    def __post_init__(self) -> None:
        origin = self.plan.origin
        if isinstance(origin, Union):
            self._parts = [Opened(part) for part in origin.parts]
            self.source = Source.union([(part.source, part.transforms()) for part in self._parts], origin.empty)
        elif isinstance(origin, Subset):
            self._parts = [Opened(replace(self.plan, origin=origin.origin, steps=()))]
            self.source = self._parts[0].source.subset(json.dumps(origin.selection), list(origin.rows))
        elif isinstance(origin, Read):
            self.source = origin.open(self._kept)
        else:
            self.source = origin.open()

    def transforms(self) -> list[Transform]:
        if self._transforms is None:
            self._transforms = list(self._make_transforms())
        return self._transforms

    def _make_transforms(self) -> Iterator[Transform]:
        group: list[Operation] = []
        for step in self.plan.steps:
            joins = isinstance(step, Operation) and (not group or group[-1].concurrency == step.concurrency)
            if group and not joins:
                yield self._pool(group)
                group = []
            if isinstance(step, Operation):
                group.append(step)
            else:
                yield Transform.columns(json.dumps(step.spec))
        if group:
            yield self._pool(group)

    def _pool(self, operations: list[Operation]) -> Transform:
        processes = operations[0].concurrency or DataContext.get_current().threads
        pool = Pool(operations, processes)
        self._pools.append(pool)
        return pool.transform

    @property
    def is_counted(self) -> bool:
        return self.plan.keeps_rows and all(rows is not None for rows, _ in self.source.units())

    @property
    def threads(self) -> int:
        """That read: at least as many as the functions of the user's have processes."""
        return max(DataContext.get_current().threads, *(one.concurrency or 1 for one in self.plan.operations), 1)

    def stream(
        self,
        epoch: int,
        *,
        batch_size: int | None = None,
        drop_last: bool = False,
        local_shuffle: int | None = None,
        seed: int | None = None,
    ) -> "BatchStream":
        """One pass over everything."""
        if seed is None:
            seed = self.plan.seed if self.plan.seed is not None else random.getrandbits(63)
        spec = {
            "shuffle": self.plan.shuffle,
            "seed": seed,
            "epoch": epoch,
            "batch_size": batch_size,
            "drop_last": drop_last,
            "threads": self.threads,
            "budget": DataContext.get_current().budget,
            "local_shuffle": local_shuffle,
            "multiple": self.plan.batch if self.plan.batch > 1 else None,
        }
        native = Stream(self.source, self.transforms(), json.dumps(spec))
        return BatchStream(self, native, self.plan.limit)


class BatchStream:
    """Blocks of one pass, and how far it has come. It keeps what it streams from open.

    Damaged parts that were passed over are reported at the end.
    """

    def __init__(self, opened: Opened, native: Stream, limit: int | None) -> None:
        self._opened, self.native, self._left = opened, native, limit

    def __iter__(self) -> Iterator[Block]:
        renames = self._opened.plan.renames
        while self._left is None or self._left > 0:
            block = self.native.next()
            if block is None:
                for warning in self._opened.source.warnings():
                    _logger.warning("%s", warning)
                return
            if renames:
                _convert.check_names(block.names)
            if self._left is not None:
                block = block if len(block) <= self._left else block.slice(0, self._left)
                self._left -= len(block)
            yield block
