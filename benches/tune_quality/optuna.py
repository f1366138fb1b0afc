"""The best loss that Optuna's TPE finds on each problem of ours, for each seed.

The losses are those of the program that BENCH_PROBLEMS names, which searches the same problems with our own searches;
only the spaces are written down here once more, in Optuna's words.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import optuna

PROGRAM = os.environ["BENCH_PROBLEMS"]
SEEDS = int(os.environ.get("BENCH_SEEDS", "20"))


def branin(trial: optuna.Trial) -> dict[str, Any]:
    return {"x": trial.suggest_float("x", -5, 10), "y": trial.suggest_float("y", 0, 15)}


def hartmann(trial: optuna.Trial) -> dict[str, Any]:
    return {name: trial.suggest_float(name, 0, 1) for name in "abcdef"}


def models(trial: optuna.Trial) -> dict[str, Any]:
    model: dict[str, Any] = {"kind": trial.suggest_categorical("kind", ["linear", "tree", "net"])}
    if model["kind"] == "linear":
        model["penalty"] = trial.suggest_float("penalty", 1e-6, 1, log=True)
    elif model["kind"] == "tree":
        model["depth"] = trial.suggest_int("depth", 1, 16)
    else:
        model["rate"] = trial.suggest_float("rate", 1e-6, 1, log=True)
        # The multiples of 16 up to 1024: Optuna has no steps on a logarithmic scale.
        model["width"] = 16 * trial.suggest_int("width", 1, 64, log=True)
        model["activation"] = trial.suggest_categorical("activation", ["relu", "tanh", "gelu"])
        model["dropout"] = trial.suggest_float("dropout", 0, 0.9, step=0.05)
    return {"model": model, "warmup": trial.suggest_float("warmup", 0, 1)}


def best_of_each_seed(name: str, config: Callable[[optuna.Trial], dict[str, Any]]) -> list[float]:
    with subprocess.Popen(
        [PROGRAM, "loss", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        questions, answers = program.stdin, program.stdout
        trials = int(answers.readline())

        def objective(trial: optuna.Trial) -> float:
            print(json.dumps(config(trial)), file=questions)
            return float(answers.readline())

        found = []
        for seed in range(SEEDS):
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
            study.optimize(objective, n_trials=trials)
            found.append(study.best_value)
        questions.close()
    return found


optuna.logging.set_verbosity(optuna.logging.WARNING)
begin = time.perf_counter()
losses = {function.__name__: best_of_each_seed(function.__name__, function) for function in (branin, hartmann, models)}
print("BENCH " + json.dumps({"losses": losses, "seconds": time.perf_counter() - begin}))
