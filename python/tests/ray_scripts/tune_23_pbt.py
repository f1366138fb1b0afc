"""Follows the kind of example of Ray 2.3 for population based training of a function, with `session.get_checkpoint`.

Two trials with a bad and a good step: the bad one takes over the weights of the good one, and its step is drawn again.
"""

import argparse
import json

import numpy as np
import ray
from ray import air, tune
from ray.air import session
from ray.air.checkpoint import Checkpoint
from ray.tune.schedulers import PopulationBasedTraining


def make_data():
    random = np.random.RandomState(2)
    inputs = random.normal(size=(100, 4))
    return inputs, inputs @ np.array([1.0, 2.0, -3.0, 0.5])


def train_function(config):
    inputs, targets = make_data()
    weights, step, inherited = np.zeros(4), 0, []
    checkpoint = session.get_checkpoint()
    if checkpoint:
        state = checkpoint.to_dict()
        weights, step = state["weights"], state["step"]
        inherited = [*state["inherited"], state["lr"]]
    while True:
        for _ in range(5):
            error = inputs @ weights - targets
            weights = weights - config["lr"] * inputs.T @ error / len(inputs)
        step += 1
        loss = float(np.mean((inputs @ weights - targets) ** 2))
        state = {"weights": weights, "step": step, "lr": config["lr"], "inherited": inherited}
        session.report(
            {"loss": loss, "lr": config["lr"], "generations": len(inherited), "step": step},
            checkpoint=Checkpoint.from_dict(state),
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=8)
    args, _ = parser.parse_known_args()
    ray.init(num_cpus=2)
    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        quantile_fraction=0.5,
        resample_probability=1.0,
        hyperparam_mutations={"lr": lambda: 0.125},
        synch=True,
    )
    tuner = tune.Tuner(
        train_function,
        run_config=air.RunConfig(
            name="pbt",
            stop={"training_iteration": args.iterations},
            checkpoint_config=air.CheckpointConfig(
                num_to_keep=4, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
            failure_config=air.FailureConfig(fail_fast=True),
            verbose=1,
        ),
        tune_config=tune.TuneConfig(scheduler=pbt, metric="loss", mode="min", num_samples=1),
        param_space={"lr": tune.grid_search([0.0001, 0.1])},
    )
    results = tuner.fit()
    assert not results.errors, results.errors
    best = results.get_best_result()
    losses = sorted(result.metrics["loss"] for result in results)
    # Both have come as far: the bad one was replaced by a copy of the good one.
    assert all(result.metrics["step"] == args.iterations for result in results)
    assert losses[-1] < 0.1, losses
    generations = sorted(result.metrics["generations"] for result in results)
    assert generations[-1] >= 1, generations
    state = best.checkpoint.to_dict()
    assert state["step"] == args.iterations
    lrs = sorted(result.metrics["lr"] for result in results)
    print(json.dumps({"lrs": lrs, "losses": [round(loss, 5) for loss in losses], "lr": best.config["lr"]}))


if __name__ == "__main__":
    main()
