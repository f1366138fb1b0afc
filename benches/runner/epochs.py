"""For the scripts that read data in training. Each worker leaves a file of when it began and ended each epoch, and how many
rows it saw.

The rate is that of all workers together, from the first that begins an epoch to the last that ends it. The first epoch is not
counted: processes start in it.
"""

import json
import os
from pathlib import Path
from statistics import median

EPOCHS = 1 + int(os.environ.get("BENCH_PASSES", "1"))
ROWS = int(os.environ["BENCH_ROWS"])


def rate(storage: str) -> dict[str, float]:
    """Of what the workers have noted. Rows that do not divide among them may be missing."""
    ranks = [json.loads(path.read_text()) for path in sorted(Path(storage).glob("epochs-*.json"))]
    took = []
    for epoch in range(EPOCHS):
        parts = [rank[epoch] for rank in ranks]
        rows = sum(part["rows"] for part in parts)
        assert ROWS - len(ranks) < rows <= ROWS, f"{rows} rows were seen of {ROWS} by {len(ranks)} workers"
        took.append(max(part["end"] for part in parts) - min(part["begin"] for part in parts))
    seconds = median(took[1:])
    return {"per_second": ROWS / seconds, "seconds": seconds, "first_pass_s": took[0]}
