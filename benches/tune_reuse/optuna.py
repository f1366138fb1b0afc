"""Trivial trials a second in Optuna's own loop: random search, in this very process.

In memory, or with BENCH_JOURNAL in a journal on disk, which is what Optuna needs to go on after its process has died.
"""

import json
import os
import time

import optuna

TRIALS = int(os.environ.get("BENCH_TRIALS", "10000"))


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1)


def storage() -> optuna.storages.BaseStorage:
    if "BENCH_JOURNAL" not in os.environ:
        return optuna.storages.InMemoryStorage()
    path = os.path.join(os.environ["BENCH_STORAGE"], "journal")
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path))


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(storage=storage(), sampler=optuna.samplers.RandomSampler(seed=0))
begin = time.perf_counter()
study.optimize(objective, n_trials=TRIALS)
seconds = time.perf_counter() - begin
assert len(study.trials) == TRIALS
print("BENCH " + json.dumps({"trials": TRIALS, "seconds": seconds, "per_second": TRIALS / seconds}))
