"""The part of a data set that one of several consumers reads."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from carril.data._plan import BatchStream, Part, Position
from carril.data.iterator import DataIterator

if TYPE_CHECKING:
    from carril._native import Block
    from carril.data.dataset import Dataset, Schema


_BEGINNING: Position = (0, 0, 0)


class Shard(DataIterator):
    """Rank `rank` of `world`: each pass over it is another epoch.

    SHARD-1: a position is what was handed over, and `goes_on_from` begins behind it, also with another number of ranks.
    """

    def __init__(self, dataset: "Dataset", world: int, rank: int, seed: int, meeting: str | None = None) -> None:
        """`meeting` is a path where the ranks agree on the end of an epoch; without it each goes to its own."""
        self._dataset, self._world, self._rank, self._seed = dataset, world, rank, seed
        self._meeting = meeting
        self._epoch = 0
        self._before: Sequence[Sequence[Position]] = ()
        self._position = _BEGINNING

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
        part = Part(self._epoch, self._world, self._rank, self._before, is_resumable=True)
        stream = self._dataset._open().stream(
            part,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle=local_shuffle,
            seed=self._seed,
            share_of_budget=self._world,
        )
        self._position = _BEGINNING
        for block, self._position in self._together(stream):  # noqa: B020
            yield block
        # A pass that was left before its end is gone on with after a restart, and not by the next pass.
        self._epoch, self._before, self._position = self._epoch + 1, (), _BEGINNING

    def _together(self, stream: BatchStream) -> "Iterator[tuple[Block, Position]]":
        """The batches, each with the position behind it: as many as every rank has."""
        batches = ((block, stream.native.position()) for block in stream)
        if self._world == 1 or self._meeting is None or stream.native.is_counted:
            return batches
        from carril.data._agreement import Board, agreed

        # Whoever goes on from the middle of an epoch meets those that do so too.
        return agreed(batches, Board(f"{self._meeting}.{self._epoch}.{len(self._before)}", self._world, self._rank))

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
