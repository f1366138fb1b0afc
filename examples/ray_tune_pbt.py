"""Population-based training with the class form of a trainable, in today's Ray style. It runs unchanged.

Four networks learn scikit-learn's digits. Every four steps those that do badly take over the weights of those that do well,
from their checkpoints, and go on with a learning rate and a momentum that are changed a little.

Run it with `carril as-ray -- python examples/ray_tune_pbt.py`.
"""

import os

import torch
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining
from sklearn.datasets import load_digits
from torch import nn


class Digits(tune.Trainable):
    def setup(self, config: dict) -> None:
        torch.manual_seed(0)
        digits = load_digits()
        self.pictures = torch.tensor(digits.data, dtype=torch.float32) / 16.0
        self.labels = torch.tensor(digits.target)
        self.judged = torch.arange(len(self.labels)) % 5 == 0
        self.network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
        self.use(config)

    def use(self, config: dict) -> None:
        for group in self.optimizer.param_groups:
            group["lr"], group["momentum"] = config["lr"], config["momentum"]

    def step(self) -> dict:
        learned = (~self.judged).nonzero().squeeze(1)
        for batch in learned[torch.randperm(len(learned))].split(64):
            loss = nn.functional.cross_entropy(self.network(self.pictures[batch]), self.labels[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        with torch.no_grad():
            right = self.network(self.pictures[self.judged]).argmax(1) == self.labels[self.judged]
        return {"mean_accuracy": right.float().mean().item()}

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, os.path.join(checkpoint_dir, "state.pt"))
        return checkpoint_dir

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        state = torch.load(os.path.join(checkpoint_dir, "state.pt"))
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        # The optimizer's state has the parameters of the trial that it was saved by.
        self.use(self.config)

    def reset_config(self, new_config: dict) -> bool:
        self.setup(new_config)
        return True


if __name__ == "__main__":
    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=4,
        quantile_fraction=0.5,
        hyperparam_mutations={"lr": tune.loguniform(0.01, 0.5), "momentum": [0.0, 0.5]},
        synch=True,
    )
    tuner = tune.Tuner(
        Digits,
        # Two that will learn, and two that would hardly do so by themselves.
        param_space={"lr": tune.grid_search([0.0001, 0.001, 0.1, 0.3]), "momentum": 0.5},
        tune_config=tune.TuneConfig(metric="mean_accuracy", mode="max", scheduler=pbt, reuse_actors=True),
        run_config=tune.RunConfig(
            stop={"training_iteration": 20},
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=4, checkpoint_score_attribute="mean_accuracy", num_to_keep=2
            ),
        ),
    )
    results = tuner.fit()
    best = results.get_best_result()
    worst = min(result.metrics["mean_accuracy"] for result in results)
    with best.checkpoint.as_directory() as directory:
        tensors = len(torch.load(os.path.join(directory, "state.pt"))["network"])
    print(
        f"accuracy {best.metrics['mean_accuracy']:.1%} after {best.metrics['training_iteration']} steps, "
        f"the worst {worst:.1%}; the best checkpoint has {tensors} tensors"
    )
