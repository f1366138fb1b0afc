"""CPU time of the head for each trial, in searches of 100, 1,000 and 10,000 trials whose processes are used again.

Each size has a head of its own, which has served a small search before: what is counted begins after its start. The
private head is the agent too; the starting and serving of processes is in the number.
"""

import json
import os
import time

import carril
from carril import tune
from carril._internal import driver

SIZES = [int(size) for size in os.environ.get("BENCH_SIZES", "100,1000,10000").split(",")]


def trial(config: dict) -> None:
    tune.report({"loss": config["x"]})


def search(name: str, trials: int) -> None:
    grid = tune.Tuner(
        trial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, reuse_actors=True),
        run_config=tune.RunConfig(name=name, storage_path=os.environ["BENCH_STORAGE"], verbose=0),
    ).fit()
    assert len(grid) == trials and not grid.errors


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, as /proc/PID/stat has it, in nanoseconds and not in ticks of 10 ms."""
    # What clock_getcpuclockid(3) computes.
    return time.clock_gettime((~pid << 3) | 2)


def per_trial(trials: int) -> float:
    carril.init(num_cpus=2)
    search(f"before-{trials}", 10)
    head = driver.ensure_client().head_pid
    before = cpu_seconds(head)
    search(f"search-{trials}", trials)
    used = cpu_seconds(head) - before
    carril.shutdown()
    return used / trials


print("BENCH " + json.dumps({"microseconds": {str(size): per_trial(size) * 1e6 for size in SIZES}}))
