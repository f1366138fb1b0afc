"""Follows the kind of page of Ray 2.7 on searchers: `OptunaSearch` in a `ConcurrencyLimiter`, with checkpoint directories.

The search looks for the two numbers of a classifier; its result is read back with `Tuner.restore(…).get_results()`.
"""

import argparse
import json
import os
import tempfile

import numpy as np
from ray import train, tune
from ray.train import Checkpoint
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch


def make_data():
    random = np.random.default_rng(4)
    inputs = random.normal(size=(150, 3))
    return inputs, np.sign(inputs[:, 0] - 0.5 * inputs[:, 1] + 0.1)


def perceptron(weights, inputs, targets, lr, margin):
    for row, target in zip(inputs, targets, strict=True):
        if target * (row @ weights) < margin:
            weights = weights + lr * target * row
    return weights


def objective(config):
    inputs, targets = make_data()
    inputs = np.column_stack([inputs, np.ones(len(inputs))])
    weights = np.zeros(4)
    for epoch in range(config["epochs"]):
        weights = perceptron(weights, inputs, targets, config["lr"], config["margin"])
        accuracy = float((np.sign(inputs @ weights) == targets).mean())
        with tempfile.TemporaryDirectory() as directory:
            np.save(os.path.join(directory, "weights.npy"), weights)
            train.report({"accuracy": accuracy, "epoch": epoch}, checkpoint=Checkpoint.from_directory(directory))


def run(num_samples):
    searcher = OptunaSearch(
        metric="accuracy",
        mode="max",
        seed=3,
        points_to_evaluate=[{"lr": 0.1, "margin": 0.0, "penalty": "none"}],
    )
    searcher = ConcurrencyLimiter(searcher, max_concurrent=1)
    tuner = tune.Tuner(
        objective,
        tune_config=tune.TuneConfig(search_alg=searcher, num_samples=num_samples),
        run_config=train.RunConfig(
            name="optuna",
            storage_path=os.path.abspath("storage"),
            checkpoint_config=train.CheckpointConfig(
                num_to_keep=1, checkpoint_score_attribute="accuracy", checkpoint_score_order="max"
            ),
        ),
        param_space={
            "epochs": 3,
            "lr": tune.loguniform(1e-4, 1.0),
            "margin": tune.uniform(0.0, 1.0),
            "penalty": tune.choice(["none", "l2"]),
        },
    )
    return tuner.fit()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-samples", type=int, default=5)
    args, _ = parser.parse_known_args()
    results = run(args.num_samples)
    best = results.get_best_result("accuracy", "max")
    assert len(results) == args.num_samples
    first = results[0]
    assert (first.config["lr"], first.config["margin"]) == (0.1, 0.0), first.config
    assert best.metrics["accuracy"] > 0.9, best.metrics
    with best.checkpoint.as_directory() as directory:
        weights = np.load(os.path.join(directory, "weights.npy"))
    assert weights.shape == (4,) and weights[0] > 0

    again = tune.Tuner.restore(os.path.abspath("storage/optuna"), trainable=objective).get_results()
    assert [result.config for result in again] == [result.config for result in results]
    assert len(again.get_dataframe()) == args.num_samples
    drawn = [[round(one.config["lr"], 6), round(one.config["margin"], 6), one.config["penalty"]] for one in results]
    print(json.dumps({"drawn": drawn, "accuracy": round(best.metrics["accuracy"], 3)}))


if __name__ == "__main__":
    main()
