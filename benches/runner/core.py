"""The core with 100, 1,000 and 10,000 workers: start, ten reports each, one failure.

The work is done by a bench of the core's own, built with it; each of its lines is a JSON object with `workers`,
`seconds` and `bytes`. Linear means: ten times the workers cost at most half as much again as ten times the time and
the memory.
"""

import itertools
import json
import subprocess
from pathlib import Path
from statistics import median

from runner.measures import Bar

BINARY = Path(__file__).resolve().parent.parent.parent / "target" / "release" / "carril-core-bench"
_SLACK = 1.5


def core(repeats: int, timeout_s: float) -> tuple[dict[int, dict[str, float]], list[Bar]]:
    """Medians of seconds and bytes by number of workers."""
    seconds: dict[int, list[float]] = {}
    sizes: dict[int, list[float]] = {}
    for _ in range(repeats):
        done = subprocess.run([str(BINARY)], stdout=subprocess.PIPE, check=True, text=True, timeout=timeout_s)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                record = json.loads(line)
                seconds.setdefault(int(record["workers"]), []).append(float(record["seconds"]))
                sizes.setdefault(int(record["workers"]), []).append(float(record["bytes"]))
    found = {
        workers: {"seconds": median(seconds[workers]), "bytes": median(sizes[workers])} for workers in sorted(seconds)
    }
    bars = []
    counts = sorted(found)
    for few, many in itertools.pairwise(counts):
        for what in ("seconds", "bytes"):
            growth = found[many][what] / max(found[few][what], 1e-9)
            limit = _SLACK * many / few
            bars.append(Bar(f"{what} linear from {few:,} to {many:,} workers", f"{growth:.1f} times", growth <= limit))
    return found, bars
