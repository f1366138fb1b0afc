"""Results of five metrics from 16 trials at once, from the first one to the moment when all are in the files.

All loggers are on: `result.json`, `progress.csv` and TensorBoard's events of each trial. What counts is what a reader
finds in them. With BENCH_SCHEDULER every report waits for what ASHA decides; without, nothing is to be decided.
"""

import csv
import json
import os
import sys
import time
from pathlib import Path

import carril
from carril import tune
from carril.tune.schedulers import ASHAScheduler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.files import json_lines, tensorboard_steps

COUNT = int(os.environ.get("BENCH_REPORTS", "5000"))
TRIALS = 16


def trial(config: dict) -> None:
    first = time.time()
    for step in range(config["count"]):
        tune.report({"loss": config["x"], "accuracy": 0.5, "first": first, "step": step, "norm": 2.5})


def counted(directory: Path) -> dict[str, int]:
    """How many results each of a trial's files holds."""
    with open(directory / "progress.csv", newline="") as file:
        rows = sum(1 for _ in csv.reader(file)) - 1
    # The trial's parameters stand at step 0, before its results.
    events = sum(tensorboard_steps(path) for path in directory.glob("events.out.tfevents.*")) - 1
    return {"result.json": json_lines(directory / "result.json"), "progress.csv": rows, "tensorboard": events}


carril.init(num_cpus=TRIALS)
# The grace lasts beyond the last report: ASHA is asked and stops nobody.
scheduler = ASHAScheduler(max_t=2 * COUNT, grace_period=2 * COUNT) if "BENCH_SCHEDULER" in os.environ else None
grid = tune.Tuner(
    trial,
    param_space={"x": tune.uniform(0, 1), "count": COUNT},
    tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=TRIALS, scheduler=scheduler),
    run_config=tune.RunConfig(storage_path=os.environ["BENCH_STORAGE"], verbose=0),
).fit()
end = time.time()
for result in grid:
    found = counted(Path(result.path))
    assert set(found.values()) == {COUNT}, f"of {COUNT} results of `{result.path}` the files hold {found}"

seconds = end - min(result.metrics["first"] for result in grid)
print("BENCH " + json.dumps({"results": TRIALS * COUNT, "seconds": seconds, "per_second": TRIALS * COUNT / seconds}))
