"""Follows the kind of page on the class API in Ray 1.x: `tune.Trainable` with `setup`, `step`, checkpoints and `tune.run(stop=…)`.

Logistic regression by hand. The best trial's checkpoint is restored into a trainable, which is trained on by hand.
"""

import argparse
import json
import os
import pickle

import numpy as np
import ray
from ray import tune


def make_data():
    random = np.random.RandomState(3)
    inputs = random.normal(size=(300, 5))
    labels = (inputs @ np.array([1.0, -2.0, 0.5, 0.0, 3.0]) > 0).astype(float)
    return inputs, labels


class TrainLogistic(tune.Trainable):
    def setup(self, config):
        self.lr = config.get("lr", 0.1)
        self.inputs, self.labels = make_data()
        self.weights = np.zeros(5)

    def step(self):
        for _ in range(5):
            scores = 1 / (1 + np.exp(-self.inputs @ self.weights))
            self.weights -= self.lr * self.inputs.T @ (scores - self.labels) / len(self.labels)
        scores = 1 / (1 + np.exp(-self.inputs @ self.weights))
        accuracy = float(((scores > 0.5) == self.labels).mean())
        return {"mean_accuracy": accuracy, "norm": float(np.abs(self.weights).sum())}

    def save_checkpoint(self, checkpoint_dir):
        path = os.path.join(checkpoint_dir, "weights.pkl")
        with open(path, "wb") as file:
            pickle.dump({"weights": self.weights, "iteration": self.iteration}, file)
        return checkpoint_dir

    def load_checkpoint(self, checkpoint_path):
        with open(os.path.join(checkpoint_path, "weights.pkl"), "rb") as file:
            self.weights = pickle.load(file)["weights"]

    def reset_config(self, new_config):
        self.lr = new_config["lr"]
        self.weights = np.zeros(5)
        return True


def main():
    parser = argparse.ArgumentParser(description="Logistic regression, class API")
    parser.add_argument("--use-gpu", action="store_true", default=False)
    parser.add_argument("--ray-address", type=str)
    args = parser.parse_args()
    ray.init(address=args.ray_address, num_cpus=4 if args.ray_address is None else None)

    analysis = tune.run(
        TrainLogistic,
        name="class_api",
        metric="mean_accuracy",
        mode="max",
        stop={"mean_accuracy": 0.99, "training_iteration": 6},
        resources_per_trial={"cpu": 1, "gpu": int(args.use_gpu)},
        num_samples=1,
        checkpoint_at_end=True,
        checkpoint_freq=3,
        keep_checkpoints_num=2,
        config={"lr": tune.grid_search([0.001, 0.01, 1.0])},
        verbose=1,
    )
    print("Best config is:", analysis.best_config)
    best = analysis.best_trial
    assert analysis.best_config == {"lr": 1.0}
    frame = analysis.dataframe(metric="mean_accuracy", mode="max")
    assert len(frame) == 3 and {"config/lr", "mean_accuracy", "trial_id"} <= set(frame.columns), list(frame.columns)
    assert len(analysis.trial_dataframes) == 3

    before = best.last_result
    checkpoint = analysis.get_best_checkpoint(best, metric="mean_accuracy", mode="max")
    trainable = TrainLogistic(config={"lr": 0.5})
    with checkpoint.as_directory() as directory:
        trainable.restore(directory)
    assert trainable.iteration == before["training_iteration"], (trainable.iteration, before)
    for _ in range(4):
        after = trainable.train()
    trainable.stop()
    assert after["training_iteration"] == before["training_iteration"] + 4, after
    assert after["norm"] > before["norm"] and best.status == "TERMINATED"
    ray.shutdown()
    results = {
        "lr": analysis.best_config["lr"],
        "accuracy": round(before["mean_accuracy"], 3),
        "iterations": sorted(one.last_result["training_iteration"] for one in analysis.trials),
        "restored_to": after["training_iteration"],
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
