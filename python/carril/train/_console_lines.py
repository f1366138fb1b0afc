"""What one rank has written, on its way to lines of a console.

A progress bar writes over its line with carriage returns: of all its states the last one counts, and until its line is
ended it is a *bar*, which a console shows in place or only now and then. The rank's file keeps every byte.
"""

import codecs
import re

# Sequences that move the cursor, clear, or set a title would end in the wrong place. Colours may stay.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.?")
_CURSOR_UP = re.compile(r"\x1b\[\d*A")
_CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {0x09, 0x1B})
_RESET = "\x1b[0m"


class RankLines:
    """The output of one rank: bytes in, whole lines out."""

    def __init__(self, colour: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._colour = colour
        # A line that a bar has begun and not ended.
        self._open = ""
        self.bar = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes end. `bar` is then what a bar shows, or empty."""
        *ended, rest = (self._open + self._decoder.decode(data)).split("\n")
        lines = []
        for line in ended:
            shown = self._shown(line)
            # Several bars at once go up again after each state: such a line is not the end of a bar.
            self.bar = shown if _CURSOR_UP.search(line) else ""
            if not self.bar and (shown or "\r" not in line):
                lines.append(shown)
        self._open = ""
        if "\r" in rest:
            self._open = self.bar = self._shown(rest)
            if self._open:
                self._open += "\r"
        elif rest:
            # Part of a very long line, or the last line of a process that did not end it.
            lines.append(self._shown(rest))
        return lines

    def flush(self) -> list[str]:
        """What is left when nothing more will come."""
        rest = self._shown(self._open + self._decoder.decode(b"", final=True)) or self.bar
        self._open = self.bar = ""
        return [rest] if rest else []

    def _shown(self, line: str) -> str:
        """What a terminal would show of a line, in the end."""
        if "\r" in line:
            states = [state for state in line.split("\r") if state]
            line = states[-1] if states else ""
            # A bar that clears itself away leaves nothing.
            line = line if line.strip() else ""
        if "\x1b" in line:
            line = _SEQUENCE.sub(lambda found: found[0] if found[1] == "m" and self._colour else "", line)
            line += _RESET if "\x1b" in line else ""
        return line.translate(_CONTROLS) if not line.isprintable() else line
