"""Follows the kind of page that showed `tune.Tuner` in Ray 2.0: `session.report` with dict checkpoints, `TuneConfig`, `ResultGrid`.

A ridge regression by gradient descent; the results are read back as a data frame and the best checkpoint is used.
"""

import json

import numpy as np
from ray import air, tune
from ray.air import session
from ray.air.checkpoint import Checkpoint


def make_data(rows=200):
    random = np.random.RandomState(1)
    inputs = random.normal(size=(rows, 6))
    truth = np.array([1.0, 0.0, -1.0, 2.0, 0.0, 0.5])
    return inputs, inputs @ truth + 0.1 * random.normal(size=rows)


def ridge(config, data=None):
    inputs, targets = data
    split = len(inputs) * 3 // 4
    weights, first = np.zeros(6), 0
    loaded = session.get_checkpoint()
    if loaded:
        state = loaded.to_dict()
        weights, first = state["weights"], state["step"] + 1
    for step in range(first, config["steps"]):
        for _ in range(10):
            error = inputs[:split] @ weights - targets[:split]
            weights = weights - config["lr"] * (inputs[:split].T @ error / split + config["penalty"] * weights)
        loss = float(np.mean((inputs[split:] @ weights - targets[split:]) ** 2))
        session.report(
            {"loss": loss, "step": step, "nested": {"norm": float(np.abs(weights).sum())}},
            checkpoint=Checkpoint.from_dict({"weights": weights, "step": step}),
        )


def main():
    data = make_data()
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(ridge, data=data), {"cpu": 1}),
        param_space={
            "steps": 4,
            "lr": tune.grid_search([0.001, 0.1]),
            "penalty": tune.grid_search([0.0, 1.0]),
        },
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=1),
        run_config=air.RunConfig(
            name="ridge",
            stop={"training_iteration": 10},
            checkpoint_config=air.CheckpointConfig(num_to_keep=2),
            failure_config=air.FailureConfig(max_failures=1),
            verbose=1,
        ),
    )
    results = tuner.fit()
    assert len(results) == 4 and results.num_errors == 0 and results.num_terminated == 4
    best = results.get_best_result()
    assert best.config["lr"] == 0.1 and best.config["penalty"] == 0.0, best.config
    assert best.metrics["step"] == 3 and best.metrics["training_iteration"] == 4, best.metrics

    frame = results.get_dataframe(filter_metric="loss", filter_mode="min")
    assert len(frame) == 4
    assert {"loss", "step", "nested/norm", "training_iteration", "config/lr", "config/penalty"} <= set(frame.columns)
    history = best.metrics_dataframe
    assert list(history["step"]) == [0, 1, 2, 3], history
    assert (best.log_dir / "result.json").exists()

    state = best.checkpoint.to_dict()
    inputs, targets = data
    error = float(np.mean((inputs @ state["weights"] - targets) ** 2))
    assert state["step"] == 3 and error < 0.05, error
    assert len(best.best_checkpoints) == 2
    losses = {
        f"{result.config['lr']} {result.config['penalty']}": round(result.metrics["loss"], 4) for result in results
    }
    print(json.dumps({"best": [best.config["lr"], best.config["penalty"]], "losses": losses, "error": round(error, 4)}))


if __name__ == "__main__":
    main()
