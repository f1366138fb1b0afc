"""For the scripts that read data: which files, how often, and how fast that was.

The first pass is not counted: rivals start processes and fill caches in it. What a pass gives is counted, and must be
all there is.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

BATCH = 4096
ROWS = int(os.environ["BENCH_ROWS"])


def paths() -> list[str]:
    """The first so many files."""
    directory = Path(os.environ["BENCH_DATA"])
    found = sorted(str(path) for path in directory.iterdir() if not path.name.startswith("."))
    return found[: int(os.environ["BENCH_FILES"])]


def tell(**values: Any) -> None:
    print("BENCH " + json.dumps(values), flush=True)


def rate(one_pass: Callable[[], int]) -> dict[str, float]:
    """Of a function that makes one pass and returns how many rows it saw."""
    took = []
    for _ in range(1 + int(os.environ.get("BENCH_PASSES", "1"))):
        began = time.perf_counter()
        rows = one_pass()
        took.append(time.perf_counter() - began)
        assert rows == ROWS, f"{rows} rows were seen of {ROWS}"
    seconds = median(took[1:])
    return {"per_second": ROWS / seconds, "seconds": seconds, "first_pass_s": took[0]}
