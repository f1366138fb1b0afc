"""A search that Optuna leads, in today's Ray style. It runs unchanged.

The trials are support vector machines on scikit-learn's digits. Two run at a time, so that Optuna knows how most trials
ended when it suggests the next one; the first suggestion is ours.

Run it with `carril as-ray -- python examples/ray_tune_optuna.py`.
"""

from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC


def objective(config: dict) -> dict:
    digits = load_digits()
    machine = SVC(C=config["C"], kernel=config["kernel"], gamma=config["gamma"])
    return {"accuracy": cross_val_score(machine, digits.data[:900], digits.target[:900], cv=3).mean()}


if __name__ == "__main__":
    search = OptunaSearch(points_to_evaluate=[{"C": 1.0, "kernel": "rbf", "gamma": 0.1}], seed=1)
    tuner = tune.Tuner(
        objective,
        param_space={
            "C": tune.loguniform(1e-2, 1e2),
            "kernel": tune.choice(["rbf", "sigmoid"]),
            "gamma": tune.loguniform(1e-5, 1e-1),
        },
        tune_config=tune.TuneConfig(
            metric="accuracy", mode="max", search_alg=ConcurrencyLimiter(search, max_concurrent=2), num_samples=20
        ),
    )
    results = tuner.fit()
    best = results.get_best_result()
    print(f"accuracy {best.metrics['accuracy']:.1%} of {len(results)} trials, with {best.config}")
    print(f"the first one had {results[0].metrics['accuracy']:.1%}")
