"""Follows the kind of page of today's Ray on schedulers: `tune.Tuner` with ASHA, `tune.report`, `tune.Checkpoint`, `tune.RunConfig`.

Decision stumps are boosted; bad rates are stopped early, and the best checkpoint classifies the rows that were held out.
"""

import json
import os
import tempfile

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_breast_cancer


def load():
    bunch = load_breast_cancer()
    inputs = (bunch.data - bunch.data.mean(0)) / bunch.data.std(0)
    labels = np.where(bunch.target == 1, 1.0, -1.0)
    return (inputs[:400], labels[:400]), (inputs[400:], labels[400:])


def best_stump(inputs, residual):
    """The column and the sign whose side of zero follows the residual best."""
    scores = np.sign(inputs).T @ residual / len(residual)
    column = int(np.argmax(np.abs(scores)))
    return column, float(scores[column])


def predict(stumps, inputs):
    total = np.zeros(len(inputs))
    for column, weight in stumps:
        total += weight * np.sign(inputs[:, column])
    return total


def boost(config, data):
    (inputs, labels), (val_inputs, val_labels) = data
    stumps = []
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory, open(os.path.join(directory, "stumps.json")) as file:
            stumps = [tuple(stump) for stump in json.load(file)]
    while len(stumps) < 27:
        residual = labels - predict(stumps, inputs)
        column, weight = best_stump(inputs, residual)
        stumps.append((column, config["rate"] * weight))
        loss = float(np.mean((val_labels - predict(stumps, val_inputs)) ** 2))
        metrics = {"loss": loss, "stumps": len(stumps), "trial": tune.get_context().get_trial_name()}
        if len(stumps) % 9 == 0:
            with tempfile.TemporaryDirectory() as directory:
                with open(os.path.join(directory, "stumps.json"), "w") as file:
                    json.dump(stumps, file)
                tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))
        else:
            tune.report(metrics)


def main():
    data = load()
    trainable = tune.with_resources(tune.with_parameters(boost, data=data), resources={"cpu": 1})
    tuner = tune.Tuner(
        trainable,
        param_space={"rate": tune.grid_search([0.6, 0.01, 0.001, 0.3])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            scheduler=ASHAScheduler(max_t=27, grace_period=3, reduction_factor=3),
            max_concurrent_trials=1,
            trial_dirname_creator=lambda trial: f"rate_{trial.config['rate']}",
        ),
        run_config=tune.RunConfig(
            name="stumps",
            storage_path=os.path.abspath("storage"),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        ),
    )
    results = tuner.fit()
    assert not results.errors, results.errors
    counts = {str(result.config["rate"]): result.metrics["stumps"] for result in results}
    assert counts["0.6"] == 27 and counts["0.01"] == counts["0.001"] == 3, counts
    best = results.get_best_result(scope="all")
    with best.checkpoint.as_directory() as directory, open(os.path.join(directory, "stumps.json")) as file:
        stumps = json.load(file)
    val_inputs, val_labels = data[1]
    accuracy = float((np.sign(predict(stumps, val_inputs)) == val_labels).mean())
    assert len(stumps) == 27 and accuracy > 0.9, accuracy
    assert sorted(os.path.basename(result.path) for result in results) == [
        f"rate_{rate}" for rate in (0.001, 0.01, 0.3, 0.6)
    ]
    frame = results.get_dataframe()
    assert sorted(frame["stumps"]) == sorted(counts.values())
    print(json.dumps({"stumps": counts, "best": best.config["rate"], "accuracy": round(accuracy, 4)}))


if __name__ == "__main__":
    main()
