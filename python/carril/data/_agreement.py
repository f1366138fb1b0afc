"""How ranks whose parts have different numbers of batches end an epoch together: with the one that has the fewest, or with
the one that has the most, while the others get something else.

Each rank says on a board, a file that all of them have mapped, how many batches it has, one ahead of the one that it hands
over. So nobody begins a step that another rank will not make.
AGREE-1: every rank hands over the same number of batches.
AGREE-2: a rank that leaves a pass before its end is not waited for.
"""

import contextlib
import logging
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_PLACE = struct.Struct("<QQ")  # how many batches a rank has, and whether these are all
_LEFT = 1 << 62
_SECONDS_UNTIL_TOLD = 10.0
_logger = logging.getLogger("carril.data")


class Board:
    """What the ranks of one machine tell each other in one epoch."""

    def __init__(self, path: str, world: int, rank: int) -> None:
        self._world, self._rank = world, rank
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, world * _PLACE.size)
            self._map = mmap.mmap(descriptor, world * _PLACE.size)
        finally:
            os.close(descriptor)

    def tell(self, batches: int, is_all: bool) -> None:
        # Whether these are all is known before anybody can wait for more of them.
        struct.pack_into("<Q", self._map, self._rank * _PLACE.size + 8, int(is_all))
        struct.pack_into("<Q", self._map, self._rank * _PLACE.size, batches)

    def all_have(self, batches: int) -> bool:
        """Whether every rank has so many; waits until that is known."""
        return self._wait(batches, lambda has, has_not, unknown: False if has_not else None if unknown else True)

    def another_has(self, batches: int) -> bool:
        """Whether some rank has so many and comes to them; waits until that is known."""
        return self._wait(batches, lambda has, has_not, unknown: True if has else None if unknown else False)

    def _wait(self, batches: int, decide: Callable[[int, int, list[int]], bool | None]) -> bool:
        """What `decide` says, as soon as it says something, of how many ranks have so many, have not, and who may yet."""
        pause, began, is_told = 0.0001, time.monotonic(), False
        while True:
            has, has_not, unknown = 0, 0, []
            for rank in range(self._world):
                there, is_all = _PLACE.unpack_from(self._map, rank * _PLACE.size)
                if there < batches and not is_all:
                    unknown.append(rank)
                has += batches <= there < _LEFT
                has_not += there < batches and bool(is_all)
            decided = decide(has, has_not, unknown)
            if decided is not None:
                return decided
            if not is_told and time.monotonic() - began > _SECONDS_UNTIL_TOLD:
                is_told = True
                _logger.warning("waiting for batch %d of rank %s", batches, ", ".join(map(str, unknown)))
            # Nobody can be woken through a file that is mapped. Looking costs a microsecond, and ranks are seldom far apart.
            time.sleep(pause)
            pause = min(pause * 2, 0.005)

    def leave(self) -> None:
        self.tell(_LEFT, True)

    def close(self) -> None:
        self._map.close()


def agreed(batches: Iterator[T], board: Board, on_cut: Callable[[int], None]) -> Iterator[T]:
    """The batches that every rank has a counterpart for; `on_cut` is told how many, where this rank has more."""
    number, ended = 0, False
    with contextlib.closing(board):
        try:
            for current in _told(batches, board):
                if not board.all_have(number + 1):
                    on_cut(number)
                    break
                number += 1
                yield current
            ended = True
        finally:
            if not ended:
                board.leave()


def evened(batches: Iterator[T], board: Board, more: Callable[[], Iterator[T]]) -> Iterator[T]:
    """All the batches, and then what `more` gives for as long as another rank has some."""
    number, ended = 0, False
    with contextlib.closing(board):
        try:
            for current in _told(batches, board):
                number += 1
                yield current
            for made_up in more():
                if not board.another_has(number + 1):
                    break
                number += 1
                yield made_up
            ended = True
        finally:
            if not ended:
                board.leave()


def _told(batches: Iterator[T], board: Board) -> Iterator[T]:
    """Each batch, after the board knows whether there is another."""
    number, ahead = 0, next(batches, None)
    board.tell(0 if ahead is None else 1, ahead is None)
    while ahead is not None:
        current, ahead = ahead, next(batches, None)
        number += 1
        board.tell(number if ahead is None else number + 1, ahead is None)
        yield current
