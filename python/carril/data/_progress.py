"""How far a long pass has come: one line on a terminal that is redrawn, and a line now and then where there is none.

For passes that Carril makes itself (`materialize`, `count`, `write_parquet`): in a loop of the user's it would write between the
user's own lines.
"""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from carril._native import Block
    from carril.data._plan import BatchStream

# What is over sooner is not told of.
_PATIENCE_S = 1.0
_DRAWN_EVERY_S = 0.2
_WRITTEN_EVERY_S = 30.0


def shown(name: str, stream: "BatchStream", out: TextIO | None = None) -> "Iterator[Block]":
    """The blocks of a pass."""
    out = out or sys.stderr
    is_terminal = out.isatty()
    begin = time.monotonic()
    due = begin + (_PATIENCE_S if is_terminal else _WRITTEN_EVERY_S)
    rows, is_drawn = 0, False
    try:
        for block in stream:
            rows += len(block)
            now = time.monotonic()
            if now >= due:
                line = _line(name, stream, rows, now - begin)
                out.write(f"\r\x1b[K{line}" if is_terminal else f"{line}\n")
                out.flush()
                due, is_drawn = now + (_DRAWN_EVERY_S if is_terminal else _WRITTEN_EVERY_S), is_terminal
            yield block
    finally:
        if is_drawn:
            out.write("\r\x1b[K")
            out.flush()


def _line(name: str, stream: "BatchStream", rows: int, seconds: float) -> str:
    pieces = stream.native.pieces
    done = min(stream.native.done, pieces)
    memory = stream.native.bytes_in_memory / 1e6
    return (
        f"{name}: {done * 100 // max(pieces, 1)} %, {rows:,} rows, {rows / seconds:,.0f} a second, "
        f"{memory:,.0f} MB in memory"
    )
