"""How good our searches are: the best loss on known functions after so many trials, beside chance and Optuna's TPE.

Our own searches run in a program of the core's (`crates/core/examples/tune_quality.rs`), which also computes the losses
for Optuna. Twenty seeds each; whether two searches differ is the z of a Mann-Whitney test of their losses. The seeds
make it repeatable, so that it runs once.
"""

import itertools
import json
import math
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, median

from runner.environments import Environment
from runner.measures import Bar, script
from runner.processes import run

BINARY = Path(__file__).resolve().parent.parent.parent / "target" / "release" / "examples" / "tune_quality"
OPTUNA = "Optuna's TPE"
_OURS = ("tpe", "gaussian process")
SEEDS = 20
# One-sided, p < 0.05: better than chance. Two-sided: as good as the rival, within the noise.
_BETTER, _NOISE = 1.645, 1.96

Losses = dict[str, dict[str, list[float]]]


def mann_whitney(left: list[float], right: list[float]) -> float:
    """How many standard deviations the U statistic is from what chance gives; positive: `left` has the lower values."""
    u = sum(1.0 if a < b else 0.5 if a == b else 0.0 for a in left for b in right)
    n, m = len(left), len(right)
    tied = [len(list(same)) for _, same in itertools.groupby(sorted([*left, *right]))]
    ties = sum(count**3 - count for count in tied)
    variance = n * m / 12 * ((n + m + 1) - ties / ((n + m) * (n + m - 1)))
    away = u - n * m / 2
    # Half a rank towards the middle: U moves in steps.
    return math.copysign(max(abs(away) - 0.5, 0.0), away) / math.sqrt(variance) if variance else 0.0


def _of_ours(seeds: int, timeout_s: float) -> tuple[Losses, dict[str, int]]:
    """Losses by problem and search, and the number of trials of each problem."""
    command = [str(BINARY), "search", str(seeds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=timeout_s)
    losses: Losses = {}
    trials: dict[str, int] = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        trials[record["problem"]] = record["trials"]
        losses.setdefault(record["problem"], {}).setdefault(record["search"], []).append(record["loss"])
    return losses, trials


def quality(
    optuna: Environment, variables: Mapping[str, str], seeds: int, timeout_s: float
) -> tuple[Losses, dict[str, int], list[Bar]]:
    """Losses by problem and search, the trials of each problem, and the bars."""
    losses, trials = _of_ours(seeds, timeout_s)
    given = {**variables, "BENCH_PROBLEMS": str(BINARY), "BENCH_SEEDS": str(seeds)}
    outcome = run(script(optuna, "tune_quality", "optuna.py"), given, timeout_s)
    if outcome.failure is not None:
        raise RuntimeError(f"optuna: {outcome.failure}")
    for problem, found in outcome.values["losses"].items():
        losses[problem][OPTUNA] = found
    bars = []
    for problem, by_search in losses.items():
        for search in _OURS:
            chance = mann_whitney(by_search[search], by_search["random"])
            rival = mann_whitney(by_search[search], by_search[OPTUNA])
            bars += [
                Bar(f"{problem}: {search} better than chance, z > {_BETTER}", f"{chance:.2f}", chance > _BETTER),
                Bar(f"{problem}: {search} not worse than {OPTUNA}, z > -{_NOISE}", f"{rival:.2f}", rival > -_NOISE),
            ]
    return losses, trials, bars


def described(by_search: Mapping[str, list[float]], shown: Callable[[float], str]) -> dict[str, tuple[str, str]]:
    """For each search its median with the range, and a note with the mean and what it is beside the others."""
    lines = {}
    for search, found in by_search.items():
        value = f"{shown(median(found))} ({shown(min(found))} to {shown(max(found))})"
        others = {"chance": "random", OPTUNA: OPTUNA}
        beside = [
            f"z {mann_whitney(found, by_search[other]):.2f} beside {words}"
            for words, other in others.items()
            if other != search and search != "random"
        ]
        lines[search] = (value, ", ".join([f"mean {shown(fmean(found))}", *beside]))
    return lines
