"""The cells of a notebook that a function comes from, so that a worker's error names the cell and shows the line.

A cell is compiled under the name of a file that is nowhere. The driver sends the text of its cells along with the function; a
worker shows lines of it as those of any other file.
"""

import linecache
import sys
from typing import Any

# So much text of cells travels with a function, the newest first.
_MOST = 1 << 20

# Number and text of each cell that the driver sent, by the name of its file.
_taken: dict[str, tuple[int, str]] = {}


def here() -> dict[str, tuple[int, str]]:
    """The cells that were run, by the name of their file: number and text. Empty in a script.

    In a worker they are those that the driver sent, for processes that the worker starts.
    """
    module = sys.modules.get("IPython")
    shell: Any = module.get_ipython() if module is not None else None
    known = getattr(getattr(shell, "compile", None), "_filename_map", None)
    if not isinstance(known, dict):
        return dict(_taken)
    cells, left = {}, _MOST
    for name, number in sorted(known.items(), key=lambda entry: -entry[1]):
        text = "".join(linecache.getlines(name))
        left -= len(text)
        if left < 0:
            break
        cells[name] = (number, text)
    return cells


def take(cells: dict[str, tuple[int, str]]) -> None:
    """What the driver sent: tracebacks of this process show their lines from now on."""
    for name, (number, text) in cells.items():
        _taken[name] = (number, text)
        # Without a time the entry is not compared with a file.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def place(name: str, line: int) -> str:
    """`cell In[3], line 5: loss = batch["x"]`; empty where the file is not a cell."""
    cell = _taken.get(name) or here().get(name)
    if cell is None:
        return ""
    number, text = cell[0], linecache.getline(name, line).strip()
    return f"cell In[{number}], line {line}" + (f": {text}" if text else "")
