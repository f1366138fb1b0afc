"""The part of a data set that one of several consumers reads."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from carril.data import _convert
from carril.data._plan import BatchStream, Part, Position
from carril.data.iterator import DataIterator

if TYPE_CHECKING:
    from carril._native import Block
    from carril.data._schema import Schema
    from carril.data.dataset import Dataset


_BEGINNING: Position = (0, 0, 0)
# Tells copies from rows, where ranks are padded.
_MARK = "is_padding"
_logger = logging.getLogger("carril.data")


class Meeting(NamedTuple):
    """How the ranks of a run agree on the end of an epoch."""

    name: str
    # Where they do.
    path: str
    # "drop", "pad" or "repeat".
    uneven: str = "drop"
    # How many streams each rank may have open.
    streams: int = 1


class _Options(NamedTuple):
    batch_size: int | None
    drop_last: bool
    local_shuffle: int | None


class Shard(DataIterator):
    """Rank `rank` of `world`: each pass over it is another epoch.

    SHARD-1: a position is what was handed over, and `goes_on_from` begins behind it, also with another number of ranks.
    """

    def __init__(
        self,
        dataset: "Dataset",
        world: int,
        rank: int,
        seed: int,
        meeting: Meeting | None = None,
        deals_rest: bool = False,
    ) -> None:
        """Without a `meeting` each rank goes to its own end of an epoch. With `deals_rest` some have a row more than others."""
        self._dataset, self._world, self._rank, self._seed = dataset, world, rank, seed
        self._meeting = meeting
        self._deals_rest = deals_rest or (meeting is not None and meeting.uneven != "drop")
        self._epoch = 0
        self._before: Sequence[Sequence[Position]] = ()
        self._position = _BEGINNING
        # The pass that is read, until its end.
        self._pass: object | None = None
        self._is_rest_told = False
        # The epoch after this one, with the options that it was begun with.
        self._ahead: tuple[int, _Options, BatchStream] | None = None

    def goes_on_from(self, seed: int, epoch: int, before: Sequence[Sequence[Position]]) -> None:
        self._seed, self._epoch, self._before = seed, epoch, before

    def position(self) -> dict[str, Any]:
        """What `goes_on_from` needs, of this rank."""
        return {
            "seed": self._seed,
            "epoch": self._epoch,
            "before": [list(map(list, segment)) for segment in self._before],
            "position": list(self._position),
        }

    def _blocks(
        self, batch_size: int | None, drop_last: bool, local_shuffle: int | None, local_seed: int | None
    ) -> "Iterator[Block]":
        options = _Options(batch_size, drop_last, local_shuffle)
        if self._pass is not None:
            # The pass before was left: it is gone on with after a restart, and not by this one.
            self._end_epoch()
        this = self._pass = object()
        stream = self._begin(options)
        self._position = _BEGINNING
        for block, position in self._together(stream, options):
            if self._pass is this:
                self._position = position
                self._read_ahead(stream, options)
            yield block
        if self._pass is this:
            self._end_epoch()

    def _end_epoch(self) -> None:
        self._epoch, self._before, self._position, self._pass = self._epoch + 1, (), _BEGINNING, None

    def _begin(self, options: "_Options") -> BatchStream:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not self._before and ahead[:2] == (self._epoch, options):
            return ahead[2]
        return self._stream(options, self._epoch, self._before, self._world, self._rank)

    def _read_ahead(self, stream: BatchStream, options: "_Options") -> None:
        """SHARD-2: when an epoch is read to its end, the next one is begun, so that nobody waits between them."""
        if self._ahead is None and stream.native.is_read:
            epoch = self._epoch + 1
            self._ahead = epoch, options, self._stream(options, epoch, (), self._world, self._rank)

    def _stream(
        self, options: "_Options", epoch: int, before: Sequence[Sequence[Position]], world: int, rank: int
    ) -> BatchStream:
        meeting = self._meeting
        part = Part(epoch, world, rank, before, is_resumable=True, deals_rest=self._deals_rest)
        return self._dataset._open().stream(
            part,
            batch_size=options.batch_size,
            drop_last=options.drop_last,
            local_shuffle=options.local_shuffle,
            seed=self._seed,
            share_of_budget=self._world * (meeting.streams if meeting is not None else 1),
            has_successor=True,
        )

    def _together(self, stream: BatchStream, options: "_Options") -> "Iterator[tuple[Block, Position]]":
        """The batches, each with the position behind it: as many as every rank has."""
        batches = ((block, stream.native.position()) for block in stream)
        meeting = self._meeting
        if self._world == 1 or meeting is None:
            return batches
        if meeting.uneven == "drop" and stream.native.is_counted:
            self._tell_rest(stream.native.rest)
            return batches
        from carril.data._agreement import Board, agreed, evened

        # Whoever goes on from the middle of an epoch meets those that do so too.
        board = Board(f"{meeting.path}.{self._epoch}.{len(self._before)}", self._world, self._rank)
        if meeting.uneven == "drop":
            return agreed(batches, board, self._tell_cut)
        if meeting.uneven == "repeat":
            return evened(batches, board, lambda: self._repeated(stream, options))
        last: list[Block] = []
        return evened(_marked(batches, last), board, lambda: self._padding(stream, last))

    def _tell_cut(self, batches: int) -> None:
        if not self._is_rest_told:
            self._is_rest_told = True
            _logger.warning(
                "an epoch of `%s` ends for all ranks after %d batch%s: rank %d has more, and another has not; they are left out. "
                "`materialize()` it, which counts its rows, or `DataConfig(uneven=…)` can pad or repeat instead",
                self._meeting.name if self._meeting is not None else "data",
                batches,
                "" if batches == 1 else "es",
                self._rank,
            )

    def _tell_rest(self, rows: int) -> None:
        if rows and self._rank == 0 and not self._is_rest_told:
            self._is_rest_told = True
            _logger.warning(
                "%d %s of `%s` %s left out of each epoch, so that %d ranks have equally many; "
                "`DataConfig(uneven=…)` can pad or repeat instead",
                rows,
                "row" if rows == 1 else "rows",
                self._meeting.name if self._meeting is not None else "data",
                "is" if rows == 1 else "are",
                self._world,
            )

    def _repeated(self, stream: BatchStream, options: "_Options") -> "Iterator[tuple[Block, Position]]":
        """This rank's part of the whole epoch from its beginning, again and again; everything, if it has no part."""
        behind = stream.native.position()
        _logger.info("rank %d has no more batches, and begins again until every rank has ended", self._rank)
        for world, rank in ((self._world, self._rank), (1, 0)):
            gave = True
            while gave:
                gave = False
                for block in self._stream(options, self._epoch, (), world, rank):
                    gave = True
                    yield block, behind

    def _padding(self, stream: BatchStream, last: "list[Block]") -> "Iterator[tuple[Block, Position]]":
        """Batches like the last one, of copies of its last row."""
        behind = stream.native.position()
        _logger.info("rank %d has no more batches, and gets padding until every rank has ended", self._rank)
        model = last[0] if last else next(iter(self._dataset.limit(1)._blocks()), None)
        if model is None:
            return
        padding = _with_mark(model.take([len(model) - 1] * len(model)), True)
        while True:
            yield padding, behind

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


def _marked(batches: "Iterator[tuple[Block, Position]]", last: "list[Block]") -> "Iterator[tuple[Block, Position]]":
    """The same, with the mark; the last one is kept."""
    for block, position in batches:
        last[:] = [block]
        yield _with_mark(block, False), position


def _with_mark(block: "Block", is_padding: bool) -> "Block":
    import numpy

    return block.beside(_convert.of_numpy({_MARK: numpy.full(len(block), is_padding)}))
