"""The part of a data set that one of several consumers reads: a face of the native shard, which decides everything."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from carril.data import _convert
from carril.data.context import DataContext
from carril.data.iterator import DataIterator

if TYPE_CHECKING:
    from carril._native import Block, Epoch, Positions, Session
    from carril._native import Shard as Native
    from carril.data._schema import Schema
    from carril.data.dataset import Dataset

_logger = logging.getLogger("carril.data")
# Rows are read in batches, so that ranks whose rows are not counted have equally many of them too.
_ROWS_AT_ONCE = 256


class Meeting(NamedTuple):
    """How the ranks of a run agree on the end of an epoch."""

    name: str
    # Where they do.
    path: str
    # "drop", "pad" or "repeat".
    uneven: str = "drop"
    # How many streams each rank may have open.
    streams: int = 1
    # Asked after ranks that do not read.
    session: "Session | None" = None


class Shard(DataIterator):
    """Rank `rank` of `world`: each pass over it is another epoch."""

    def __init__(
        self,
        dataset: "Dataset",
        world: int,
        rank: int,
        seed: int,
        meeting: Meeting | None = None,
        deals_rest: bool = False,
        saved: "Positions | None" = None,
        tell_read: "Callable[[int, int, int], None] | None" = None,
    ) -> None:
        """Without a `meeting` each rank goes to its own end of an epoch. With `deals_rest` some have a row more than others.

        `saved` is where the ranks were when the checkpoint was made that is resumed from. `tell_read` is called with every block: with the
        number of the epoch, the rows of it that were read, and how many there are.
        """
        # A limit is of all ranks together.
        self._dataset, self._world, self._rank, self._seed = dataset._settled(), world, rank, seed
        self._meeting, self._deals_rest, self._saved = meeting, deals_rest, saved
        self._tell_read = tell_read
        # Where it is not this process's.
        self.context: DataContext | None = None
        self._made: Native | None = None
        self._is_told = False
        # Of all epochs that were read to their end: the rows that all ranks were handed, as well as one can tell, and those that were left out.
        self.handed = self.left_out = 0

    @property
    def _native(self) -> "Native":
        if self._made is None:
            self._made = self._opened()
        return self._made

    def _opened(self) -> "Native":
        from carril._native import Shard as Native

        opened, context, meeting = self._dataset._open(), self.get_context(), self._meeting
        streams = self._world * (meeting.streams if meeting is not None else 1)
        options = {
            "name": meeting.name if meeting is not None else "data",
            "shuffle": opened.plan.shuffle,
            "seed": self._seed,
            "world": self._world,
            "rank": self._rank,
            "uneven": meeting.uneven if meeting is not None else "drop",
            "deals_rest": self._deals_rest,
            "meeting": meeting.path if meeting is not None else None,
            "multiple": opened.plan.batch,
            "threads": opened.threads,
            "budget": context.budget // streams,
        }
        session = meeting.session if meeting is not None else None
        return Native(opened.source, opened.transforms(), json.dumps(options), self._saved, session)

    def get_context(self) -> DataContext:
        """The settings that this part is read with."""
        return self.context if self.context is not None else DataContext.get_current()

    def __getstate__(self) -> dict[str, Any]:
        # Opened where it is read: each process has its own.
        return {**self.__dict__, "_made": None}

    def progress(self) -> str | None:
        """What a checkpoint keeps of this rank, as JSON. None where nothing was ever read."""
        return None if self._made is None and self._saved is None else self._native.progress()

    def _blocks(
        self, batch_size: int | None, drop_last: bool, local_shuffle: int | None, local_seed: int | None
    ) -> "Iterator[Block]":
        return (block for _, block in self._read(batch_size, drop_last, local_shuffle))

    def _rows(self) -> Iterator[dict[str, Any]]:
        for epoch, block in self._read(_ROWS_AT_ONCE, False, None):
            # What is handed over is a row: a checkpoint that is made now resumes with the next one of the same block.
            for number, row in enumerate(_convert.to_rows(block), 1):
                epoch.hand_over(number)
                yield row

    def _read(
        self, batch_size: int | None, drop_last: bool, local_shuffle: int | None
    ) -> "Iterator[tuple[Epoch, Block]]":
        """One pass, with each block that it gives."""
        cut = {"batch_size": batch_size, "drop_last": drop_last, "local_shuffle": local_shuffle}
        epoch = self._native.begin(json.dumps(cut))
        self._tell_rest(epoch.rest)
        opened = self._dataset._open()
        while (block := epoch.next()) is not None:
            if opened.plan.renames:
                _convert.check_names(block.names)
            if self._tell_read is not None and (read := epoch.rows_read) is not None:
                self._tell_read(epoch.number, *read)
            yield epoch, block
        for warning in opened.source.warnings():
            _logger.warning("%s", warning)
        handed, left_out = epoch.left_out
        self.handed += handed * self._world
        self.left_out += left_out + (epoch.rest if self._rank == 0 else 0)
        self._tell_left_out(handed, left_out)

    def _tell_left_out(self, handed: int, left_out: int) -> None:
        if left_out and not self._is_told:
            self._is_told = True
            _logger.warning(
                "%d of %d rows of `%s` are left out of this epoch: rank %d has them, and another rank has no more. "
                "`DataConfig(uneven=…)` can pad or repeat instead",
                left_out,
                handed + left_out,
                self._meeting.name if self._meeting is not None else "data",
                self._rank,
            )

    def _tell_rest(self, rows: int) -> None:
        if rows and self._meeting is not None and self._rank == 0 and not self._is_told:
            self._is_told = True
            _logger.warning(
                "%d %s of `%s` %s left out of each epoch, so that %d ranks have equally many; "
                "`DataConfig(uneven=…)` can pad or repeat instead",
                rows,
                "row" if rows == 1 else "rows",
                self._meeting.name,
                "is" if rows == 1 else "are",
                self._world,
            )

    def schema(self) -> "Schema | None":
        return self._dataset.schema()

    def stats(self) -> str:
        return self._dataset.stats()

    def materialize(self) -> "Dataset":
        from carril.data._plan import Memory, Plan
        from carril.data.dataset import MaterializedDataset

        return MaterializedDataset(Plan(Memory(tuple(self._blocks(None, False, None, None)))))

    def __repr__(self) -> str:
        return f"<part {self._rank} of {self._world} of {self._dataset!r}>"
