"""How ranks whose parts have different numbers of batches end an epoch together: with the one that has the fewest.

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
from collections.abc import Iterator
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
        pause, began, is_told = 0.0001, time.monotonic(), False
        while True:
            unknown = []
            for rank in range(self._world):
                there, is_all = _PLACE.unpack_from(self._map, rank * _PLACE.size)
                if there < batches:
                    if is_all:
                        return False
                    unknown.append(rank)
            if not unknown:
                return True
            if not is_told and time.monotonic() - began > _SECONDS_UNTIL_TOLD:
                is_told = True
                _logger.warning("waiting for batch %d of rank %s", batches, ", ".join(map(str, unknown)))
            time.sleep(pause)
            pause = min(pause * 2, 0.005)

    def leave(self) -> None:
        self.tell(_LEFT, True)

    def close(self) -> None:
        self._map.close()


def agreed(batches: Iterator[T], board: Board) -> Iterator[T]:
    """The batches that every rank has a counterpart for."""
    number, ended = 0, False
    with contextlib.closing(board):
        try:
            ahead = next(batches, None)
            board.tell(0 if ahead is None else 1, ahead is None)
            while ahead is not None:
                if not board.all_have(number + 1):
                    _logger.info("the epoch ends with %d batches: another rank has no more", number)
                    break
                current, ahead = ahead, next(batches, None)
                number += 1
                board.tell(number if ahead is None else number + 1, ahead is None)
                yield current
            ended = True
        finally:
            if not ended:
                board.leave()
