"""Reports of five metrics from two workers, from the first one to the moment when all are in the files.

The files are the run's own: `result.json`, `progress.csv` and TensorBoard's events for rank 0, `ranks/` for the
others. What counts is what a reader finds in them, not what a counter of ours says.
"""

import csv
import json
import os
import statistics
import sys
import time
from pathlib import Path

from carril import train

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.files import json_lines, tensorboard_steps

COUNT = int(os.environ.get("BENCH_REPORTS", "50000"))


def loop(config: dict) -> dict:
    from time import perf_counter_ns

    report = train.report
    took = []
    first = time.time()
    for step in range(config["count"]):
        metrics = {"loss": 1.0 / (step + 1), "accuracy": 0.5, "lr": 0.001, "step": step, "norm": 2.5}
        begin = perf_counter_ns()
        report(metrics)
        took.append(perf_counter_ns() - begin)
    return {
        "first": first,
        "median_us": statistics.median(took) / 1000,
        "p99_us": sorted(took)[len(took) * 99 // 100] / 1000,
    }


def counted(directory: Path) -> dict[str, int]:
    """How many reports each of the files holds."""
    with open(directory / "progress.csv", newline="") as file:
        rows = sum(1 for _ in csv.reader(file)) - 1
    events = sum(tensorboard_steps(path) for path in directory.glob("events.out.tfevents.*"))
    others = json_lines(directory / "ranks" / "rank_1.json")
    return {
        "result.json": json_lines(directory / "result.json"),
        "progress.csv": rows,
        "tensorboard": events,
        "other ranks": others,
    }


trainer = train.DataParallelTrainer(
    loop,
    train_loop_config={"count": COUNT},
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=os.environ["BENCH_STORAGE"]),
)
result = trainer.fit()
end = time.time()
found = counted(Path(result.path))
deadline = time.time() + 60
while set(found.values()) != {COUNT} and time.time() < deadline:
    time.sleep(0.1)
    found = counted(Path(result.path))
    end = time.time()
assert set(found.values()) == {COUNT}, f"of {COUNT} reports of each rank the files hold {found}"

value = result.return_value
seconds = end - value["first"]
print(
    "BENCH "
    + json.dumps(
        {
            "reports": 2 * COUNT,
            "seconds": seconds,
            "per_second": 2 * COUNT / seconds,
            "median_us": value["median_us"],
            "p99_us": value["p99_us"],
        }
    )
)
