"""Follows the pages of today's Ray on a searcher and a scheduler of one's own: `Searcher.suggest`, `FIFOScheduler.on_trial_result`.

The searcher halves an interval; the scheduler stops trials that are worse than the best one was at the same step.
"""

import json

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher


class Bisection(Searcher):
    """Asks at a quarter and at three quarters of an interval, and keeps the better half."""

    def __init__(self, low, high, metric="score", mode="max"):
        super().__init__(metric=metric, mode=mode)
        self.low, self.high = low, high
        self.asked, self.scores, self.calls = {}, {}, []

    def suggest(self, trial_id):
        if len(self.scores) % 2 != len(self.asked) % 2:
            return None
        if len(self.asked) == 10:
            return Searcher.FINISHED
        quarter = (self.high - self.low) / 4
        x = self.low + quarter if len(self.asked) % 2 == 0 else self.high - quarter
        self.asked[trial_id] = x
        return {"x": x, "nested": {"number": len(self.asked)}}

    def on_trial_result(self, trial_id, result):
        self.calls.append(trial_id)

    def on_trial_complete(self, trial_id, result=None, error=False):
        assert result is not None and not error
        self.scores[self.asked[trial_id]] = result["best"]
        if len(self.scores) % 2 == 0:
            left, right = list(self.scores.items())[-2:]
            middle = (self.low + self.high) / 2
            if left[1] >= right[1]:
                self.high = middle
            else:
                self.low = middle

    def save(self, checkpoint_path):
        with open(checkpoint_path, "w") as file:
            json.dump([self.low, self.high, self.asked], file)

    def restore(self, checkpoint_path):
        with open(checkpoint_path) as file:
            self.low, self.high, self.asked = json.load(file)


class StopTheWorse(FIFOScheduler):
    """Stops a trial after its second step if it is far behind the best one."""

    def __init__(self, patience):
        super().__init__()
        self.patience = patience
        self.best, self.stopped = {}, []

    def on_trial_result(self, tune_controller, trial, result):
        step = result["training_iteration"]
        best = self.best.setdefault(step, result["score"])
        self.best[step] = max(best, result["score"])
        if step >= self.patience and result["score"] < best - 1.0:
            self.stopped.append(trial.trial_id)
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE


def climb(config):
    """Comes closer to its peak with each step; the peak is highest at x = 3."""
    peak = 5 - (config["x"] - 3) ** 2
    for step in range(1, 5):
        tune.report({"score": peak - 8 / 4**step, "best": peak, "step": step})


def main():
    searcher, scheduler = Bisection(0.0, 8.0), StopTheWorse(patience=2)
    tuner = tune.Tuner(
        climb,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=scheduler,
            metric="score",
            mode="max",
            num_samples=20,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(name="bisection", verbose=0),
    )
    results = tuner.fit()
    xs = [result.config["x"] for result in results]
    best = results.get_best_result()
    assert len(results) == 10 and xs[:2] == [2.0, 6.0], xs
    assert abs(best.config["x"] - 3) < 0.2, best.config
    steps = [result.metrics["step"] for result in results]
    assert len(scheduler.stopped) == steps.count(2) > 0, (steps, scheduler.stopped)
    assert set(searcher.asked.values()) == set(xs)
    assert [result.config["nested"]["number"] for result in results] == list(range(1, 11))
    print(json.dumps({"xs": xs, "steps": steps, "best": best.config["x"], "heard": len(searcher.calls)}))


if __name__ == "__main__":
    main()
