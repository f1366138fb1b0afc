"""Builds the wheel into a directory and shows how far the compiler is: `make build`, and `make wheel` with another linker.

The first build compiles some hundred crates for minutes. What the tools print is shown only when the build fails.
"""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILING = re.compile(r"Compiling (\S+) v")


class Progress:
    """A line that counts crates: rewritten each second on a terminal, printed now and then elsewhere."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._began = time.monotonic()
        self._rewrites = sys.stderr.isatty()
        self._pause_s = 1.0 if self._rewrites else 20.0
        # About how many crates a first build compiles; a later one compiles what has changed.
        self._crates = (ROOT / "Cargo.lock").read_text().count("[[package]]")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> "Progress":
        self._print(f"building the wheel; a first build compiles about {self._crates} crates for some minutes\n")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._print(f"the build took {time.monotonic() - self._began:.0f} s\n")

    def _show(self) -> None:
        while not self._over.wait(self._pause_s):
            compiled = [found[1] for found in map(COMPILING.search, self.lines.copy()) if found]
            minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
            now = f", now {compiled[-1]}" if compiled else ""
            end = "" if self._rewrites else "\n"
            self._print(f"building {minutes}:{seconds:02}, {len(compiled)} of at most {self._crates} crates{now}{end}")

    def _print(self, text: str) -> None:
        start = "\r\x1b[K" if self._rewrites else ""
        print(f"{start}carril: {text}", end="", file=sys.stderr, flush=True)


def build(output: Path, **variables: str) -> None:
    uv = Path(sys.executable).parent / "uv"
    command = [uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", output, "."]
    building = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert building.stdout is not None
    with Progress() as progress:
        for line in building.stdout:
            progress.lines.append(line)
        failed = building.wait() != 0
    if failed:
        sys.exit("".join(progress.lines) + "error: the wheel was not built")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
