"""Records real runs in a terminal and renders them as a moving SVG; draws the plot of a real search: `make recording`.

The commands run in a pseudo terminal of their own, whose screen is pyte's. Every screen that differs from the one before is a
frame; pauses are shortened, so that the picture is short whatever the machine. The home directory and the host's name are
replaced: the picture shows nothing of the machine that it was made on.
"""

import argparse
import fcntl
import html
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
TRAINING = "python examples/digits.py --epochs 60"
SEARCH = "python examples/tune_asha.py"
COLUMNS, LINES = 100, 26
# A frame lasts at least and at most so long in the picture, all of them together at most so long, and the last one stays.
SHORTEST_S, LONGEST_S, ALL_S, LAST_S = 0.08, 0.8, 14.0, 6.0
DEADLINE_S = 600
CELL, LINE, LEFT, TOP = 8.4, 18.0, 16.0, 44.0
COLOURS = {
    "default": "#d5dae3",
    "black": "#6b7489",
    "red": "#f07178",
    "green": "#a5d47a",
    "brown": "#e6c06b",
    "blue": "#7aa9f7",
    "magenta": "#c792ea",
    "cyan": "#70d0dc",
    "white": "#eef1f6",
}


@dataclass(frozen=True)
class Span:
    """Characters of one look, beside each other."""

    column: int
    text: str
    colour: str
    bold: bool


Frame = tuple[tuple[Span, ...], ...]


def record(command: str, home: Path) -> list[tuple[float, bytes]]:
    """What a command writes to its terminal, with the time of each piece."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.chdir(ROOT)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARRIL_", "NO_COLOR"))}
        own = {"HOME": str(home), "TMPDIR": str(home), "PATH": path, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        os.execvpe("bash", ["bash", "-c", f"exec {command}"], {**kept, **own})
    began, pieces = time.monotonic(), []
    while time.monotonic() < began + DEADLINE_S:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        pieces.append((time.monotonic() - began, piece))
    else:
        sys.exit(f"error: `{command}` did not end in {DEADLINE_S} s")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        sys.exit(f"error: `{command}` left with {status}\n{b''.join(piece for _, piece in pieces).decode()}")
    return pieces


def typed(command: str) -> list[tuple[float, bytes]]:
    """A prompt, and the command as somebody types it."""
    keys = [(0.05 * number, key.encode()) for number, key in enumerate(command, 1)]
    return [(0.0, b"\x1b[32m$\x1b[0m "), *keys, (0.05 * len(command) + 0.3, b"\r\n")]


def spans(screen: pyte.Screen, row: int) -> tuple[Span, ...]:
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    found, column = [], 0
    for (colour, bold), group in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in group)
        if text.strip():
            indent = len(text) - len(text.lstrip())
            found.append(Span(column + indent, text.strip(), COLOURS.get(colour, f"#{colour}"), bold))
        column += len(text)
    return tuple(found)


def frames(pieces: list[tuple[float, bytes]], replaced: dict[bytes, bytes]) -> list[tuple[float, Frame]]:
    """Each screen that differs from the one before, and how long it is shown."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    seen: list[tuple[float, Frame]] = []
    for at, piece in pieces:
        for old, new in replaced.items():
            piece = piece.replace(old, new)
        stream.feed(piece)
        frame = tuple(spans(screen, row) for row in range(LINES))
        if seen and at - seen[-1][0] < SHORTEST_S:
            seen[-1] = (seen[-1][0], frame)  # What is gone at once nobody would see.
        elif not seen or frame != seen[-1][1]:
            seen.append((at, frame))
    ends = [at for at, _ in seen[1:]]
    lasts = [min(max(end - at, SHORTEST_S), LONGEST_S) for (at, _), end in zip(seen, ends, strict=False)]
    faster = max(sum(lasts) / ALL_S, 1.0)
    lasts = [one / faster for one in lasts]
    return list(zip([*lasts, LAST_S], [frame for _, frame in seen], strict=True))


def line_of(row: int, line: tuple[Span, ...]) -> str:
    """A line of the terminal; each span has its width, whatever font it is shown in."""
    texts = []
    for span in line:
        weight = ' font-weight="bold"' if span.bold else ""
        texts.append(
            f'<text x="{LEFT + span.column * CELL:.1f}" y="{TOP + row * LINE:.0f}" fill="{span.colour}"{weight} '
            f'textLength="{len(span.text) * CELL:.1f}" lengthAdjust="spacingAndGlyphs">{html.escape(span.text).replace(" ", "&#160;")}</text>'
        )
    return "".join(texts)


def svg(shown: list[tuple[float, Frame]], title: str) -> str:
    """One group for each line that is on the screen for a while, visible for that while."""
    height = max(row for _, frame in shown for row, line in enumerate(frame) if line) + 1
    total = sum(lasts for lasts, _ in shown)
    starts = [sum(lasts for lasts, _ in shown[:number]) for number in range(len(shown))] + [total]
    styles, groups = [], []
    for row in range(height):
        number = 0
        for line, run in groupby([frame[row] for _, frame in shown]):
            first, number = number, number + len(list(run))
            if not line:
                continue
            if (first, number) == (0, len(shown)):
                groups.append(f"<g>{line_of(row, line)}</g>")
                continue
            begin, end = 100 * starts[first] / total, 100 * starts[number] / total
            name = f"r{row}f{first}"
            steps = [f"0%{{visibility:{'visible' if first == 0 else 'hidden'}}}", f"{begin:.3f}%{{visibility:visible}}"]
            steps.append(f"{end:.3f}%{{visibility:hidden}}" if number < len(shown) else "100%{visibility:visible}")
            styles.append(f"@keyframes {name}{{{''.join(steps)}}}")
            # Without animation, as in a printed page, the last screen stands.
            still = "" if number == len(shown) else ' visibility="hidden"'
            groups.append(f'<g{still} style="animation:{name} {total:.2f}s step-end infinite">{line_of(row, line)}</g>')
    width, tall = 2 * LEFT + COLUMNS * CELL, TOP + height * LINE + 4
    dots = "".join(f'<circle cx="{20 + 18 * place}" cy="17" r="5" fill="#4a5163"/>' for place in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {tall:.0f}" width="{width:.0f}" role="img" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14">\n'
        f"<title>{html.escape(title)}</title>\n<style>{''.join(styles)}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1c212b"/>{dots}\n' + "\n".join(groups) + "\n</svg>\n"
    )


def record_training(home: Path) -> None:
    # A longer name than the host's own would wrap lines that were cut to the width of the terminal.
    host = socket.gethostname()
    name = next((name for name in ("workstation", "desktop", "laptop", "node1") if len(name) <= len(host)), "pc")
    replaced = {str(home).encode(): b"~", host.encode(): name.encode()}
    began = typed(TRAINING)
    after = began[-1][0] + 0.2
    shown = frames(began + [(at + after, piece) for at, piece in record(TRAINING, home)], replaced)
    picture = svg(shown, f"A terminal: {TRAINING}")
    if str(home) in picture:
        sys.exit("error: the directory of this machine is in the picture: a path was cut in two; record again")
    (IMAGES / "terminal.svg").write_text(picture)


def plot_search(home: Path) -> None:
    record(SEARCH, home)
    (experiment,) = (path.parent for path in (home / "carril_results").glob("*/experiment.json"))
    carril = Path(sys.executable).parent / "carril"
    subprocess.run([carril, "tune", "plot", experiment, "parallel", "-o", IMAGES / "search.svg"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="the pictures of the README, from real runs")
    parser.add_argument("--only", choices=("terminal", "plot"))
    arguments = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rec-") as home:
        if arguments.only != "plot":
            record_training(Path(home))
        if arguments.only != "terminal":
            plot_search(Path(home))


if __name__ == "__main__":
    main()
