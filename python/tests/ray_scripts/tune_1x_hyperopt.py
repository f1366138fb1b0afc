"""Follows the kind of example that Ray 1.x had for each library of searchers: `ray.tune.suggest`, `ConcurrencyLimiter`, `tune.run`.

A curve is fitted by gradient descent; HyperOpt looks for the step and the width, beginning with two guesses of the user.
"""

import argparse
import json
import math

import numpy as np
import ray
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler

try:
    from ray.tune.suggest import ConcurrencyLimiter
    from ray.tune.suggest.hyperopt import HyperOptSearch
except ImportError:  # Ray 2.0 moved them
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.hyperopt import HyperOptSearch


def evaluation_fn(weights, inputs, targets):
    return float(np.mean((inputs @ weights - targets) ** 2))


def easy_objective(config):
    width, step = config["width"], config["step"]
    random = np.random.RandomState(0)
    points = np.linspace(-1, 1, 40)
    targets = np.sin(math.pi * points)
    inputs = np.stack([points**power for power in range(width)], axis=1)
    weights = random.normal(scale=0.01, size=width)
    for _ in range(config["steps"]):
        for _ in range(25):
            weights -= step * inputs.T @ (inputs @ weights - targets) / len(points)
        tune.report(mean_loss=evaluation_fn(weights, inputs, targets))


def run_hyperopt_tune(config_dict=None, smoke_test=False):
    current_best_params = [
        {"width": 2, "step": 0.1, "activation": "relu"},
        {"width": 6, "step": 0.5, "activation": "tanh"},
    ]
    algo = HyperOptSearch(
        metric="mean_loss",
        mode="min",
        points_to_evaluate=current_best_params,
        n_initial_points=4,
        random_state_seed=11,
    )
    algo = ConcurrencyLimiter(algo, max_concurrent=1)
    scheduler = AsyncHyperBandScheduler(metric="mean_loss", mode="min", grace_period=5)
    analysis = tune.run(
        easy_objective,
        name="hyperopt",
        search_alg=algo,
        scheduler=scheduler,
        num_samples=3 if smoke_test else 6,
        config={
            "steps": 4,
            "width": tune.randint(2, 8),
            "step": tune.loguniform(1e-3, 1.0),
            "activation": tune.choice(["relu", "tanh"]),
        },
        verbose=1,
    )
    return analysis


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke-test", action="store_true", help="Finish quickly for testing")
    parser.add_argument("--server-address", type=str, default=None, required=False)
    args, _ = parser.parse_known_args()
    ray.init(address=args.server_address)

    analysis = run_hyperopt_tune(smoke_test=args.smoke_test)
    best = analysis.get_best_trial("mean_loss", "min")
    config = analysis.get_best_config(metric="mean_loss", mode="min")
    print("Best hyperparameters found were: ", config)
    first, second = (trial.config for trial in analysis.trials[:2])
    assert (first["width"], first["step"], first["activation"]) == (2, 0.1, "relu"), first
    assert (second["width"], second["step"], second["activation"]) == (6, 0.5, "tanh"), second
    assert all(2 <= trial.config["width"] < 8 for trial in analysis.trials)
    assert best.last_result["mean_loss"] <= analysis.trials[1].last_result["mean_loss"] < 0.1
    assert len({trial.config["step"] for trial in analysis.trials}) == len(analysis.trials)
    losses = [round(trial.last_result["mean_loss"], 6) for trial in analysis.trials[:2]]
    print(json.dumps({"losses": losses, "trials": len(analysis.trials)}))
