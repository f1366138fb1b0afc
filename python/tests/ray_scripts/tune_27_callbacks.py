"""Follows the kind of page of Ray 2.7 on stopping and logging: `tune.Callback`, `LoggerCallback`, stoppers, `train.report` in a trial.

The error of a series falls until it stands still; the plateau stopper ends the trials, and the user's logger has written each report.
"""

import json
import os
from pathlib import Path

from ray import train, tune
from ray.tune import Callback
from ray.tune.logger import LoggerCallback
from ray.tune.stopper import CombinedStopper, MaximumIterationStopper, Stopper, TrialPlateauStopper


def series(config):
    """Leibniz' series for pi, and the same one averaged, whose error stands still sooner."""
    total, before = 0.0, 0.0
    for number in range(1000):
        before, total = total, total + 4 * (-1) ** number / (2 * number + 1)
        value = (total + before) / 2 if config["averaged"] else total
        train.report({"error": abs(value - 3.141592653589793), "terms": number + 1, "config_seen": dict(config)})


class Watch(Callback):
    def __init__(self):
        self.events = []

    def setup(self, **info):
        self.events.append("setup")

    def on_trial_start(self, iteration, trials, trial, **info):
        self.events.append("start")

    def on_trial_result(self, iteration, trials, trial, result, **info):
        assert result["trial_id"] == trial.trial_id

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.events.append("complete")

    def on_experiment_end(self, trials, **info):
        self.events.append(f"end with {len(trials)}")


class LinesLogger(LoggerCallback):
    """One line for each report, in a file of each trial."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.files = {}

    def log_trial_start(self, trial):
        self.directory.mkdir(exist_ok=True)
        path = self.directory / f"averaged_{trial.config['averaged']}.txt"
        self.files[trial] = path.open("w")

    def log_trial_result(self, iteration, trial, result):
        print(iteration >= 0, result["training_iteration"], f"{result['error']:.6f}", file=self.files[trial])

    def log_trial_end(self, trial, failed=False):
        print("failed" if failed else "well", file=self.files[trial])
        self.files.pop(trial).close()


class Exact(Stopper):
    def __call__(self, trial_id, result):
        return result["error"] < 1e-9

    def stop_all(self):
        return False


def main():
    watch = Watch()
    plateau = TrialPlateauStopper("error", std=0.02, num_results=5, grace_period=5, mode="min")
    tuner = tune.Tuner(
        series,
        param_space={"averaged": tune.grid_search([True, False])},
        tune_config=tune.TuneConfig(metric="error", mode="min"),
        run_config=train.RunConfig(
            name="series",
            stop=CombinedStopper(MaximumIterationStopper(max_iter=40), plateau, Exact()),
            callbacks=[watch, LinesLogger("lines")],
            verbose=0,
        ),
    )
    grid = tuner.fit()
    counts = {str(result.config["averaged"]): result.metrics["terms"] for result in grid}
    assert counts["True"] < counts["False"] <= 40, counts
    assert sorted(set(watch.events)) == ["complete", "end with 2", "setup", "start"], watch.events
    assert watch.events[0] == "setup" and watch.events[-1] == "end with 2", watch.events
    for name, terms in counts.items():
        lines = Path("lines", f"averaged_{name}.txt").read_text().splitlines()
        assert len(lines) == terms + 1 and lines[-1] == "well", lines
    best = grid.get_best_result()
    assert best.config == {"averaged": True}
    assert os.path.isfile(os.path.join(best.path, "progress.csv"))
    print(json.dumps({"terms": counts, "error": round(best.metrics["error"], 6)}))


if __name__ == "__main__":
    main()
