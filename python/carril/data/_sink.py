"""Writers of the user's own: a `Datasink` is given what a data set has, block by block, in the process that writes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril._native import Block
from carril.data import _convert
from carril.data._numbers import whole
from carril.exceptions import ConfigTypeError, kind_of

if TYPE_CHECKING:
    from carril.data.dataset import Dataset


@dataclass(frozen=True)
class TaskContext:
    """Which of the writes this is."""

    task_idx: int
    op_name: str = "Write"


@dataclass
class WriteResult:
    """What was written: `write_returns` is what each call of `write` returned."""

    num_rows: int = 0
    size_bytes: int = 0
    write_returns: list[Any] = field(default_factory=list)


class Datasink(ABC):
    """Where rows go: `write` is given tables of pyarrow. An error in it ends the write, after `on_write_failed`."""

    def on_write_start(self, schema: Any = None) -> None:  # noqa: B027
        """Before the first block is written."""

    @abstractmethod
    def write(self, blocks: Iterable[Any], ctx: TaskContext) -> Any: ...

    def on_write_complete(self, write_result: WriteResult) -> None:  # noqa: B027
        """When all is written."""

    def on_write_failed(self, error: Exception) -> None:  # noqa: B027
        """When the data set or `write` has failed."""

    def get_name(self) -> str:
        name = type(self).__name__
        return name[1:].removesuffix("Datasink") if name.startswith("_") else name.removesuffix("Datasink")

    @property
    def supports_distributed_writes(self) -> bool:
        return True

    @property
    def min_rows_per_write(self) -> int | None:
        """So many rows are given to `write` together, or more."""
        return None


def write(dataset: "Dataset", sink: Any) -> None:
    if not isinstance(sink, Datasink):
        raise ConfigTypeError(
            f"`write_datasink` wants a `Datasink`, not {kind_of(sink)}",
            hints=["derive a class from `Datasink` that has a method `write(blocks, ctx)`"],
        )
    least = sink.min_rows_per_write
    result = WriteResult()
    sink.on_write_start()
    try:
        rows = 1 if least is None else whole(least, 1, f"min_rows_per_write={least!r}", "rows")
        for number, blocks in enumerate(_bundles(dataset, rows)):
            tables = [_convert.to_arrow(block) for block in blocks]
            result.num_rows += sum(map(len, blocks))
            result.size_bytes += sum(table.nbytes for table in tables)
            result.write_returns.append(sink.write(tables, TaskContext(number)))
    except Exception as error:
        sink.on_write_failed(error)
        raise
    sink.on_write_complete(result)


def _bundles(dataset: "Dataset", least: int) -> Iterator[list[Block]]:
    held: list[Block] = []
    for block in dataset._all_blocks():
        held.append(block)
        if sum(map(len, held)) >= least:
            yield held
            held = []
    if held:
        yield held
