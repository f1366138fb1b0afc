"""Follows the kind of page of Ray 2.3 on fault tolerance in Tune: a search with errors, then `Tuner.restore(resume_errored=True)`.

One of three trials fails in the middle; the restored search takes that one alone from its checkpoint to the end.
"""

import json
import os
from pathlib import Path

import ray
from ray import air, tune
from ray.air import session
from ray.air.checkpoint import Checkpoint

STEPS = 5


def newton(config):
    """A cube root, one digit after the other."""
    guess, first = 1.0, 0
    checkpoint = session.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            saved = json.loads((Path(directory) / "state.json").read_text())
        guess, first = saved["guess"], saved["step"] + 1
    for step in range(first, STEPS):
        if config["number"] == 27 and step == 2 and not os.path.exists(config["gate"]):
            raise ValueError("no more digits")
        guess = guess - (guess**3 - config["number"]) / (3 * guess**2)
        directory = Path(f"saved_{step}")
        directory.mkdir(exist_ok=True)
        (directory / "state.json").write_text(json.dumps({"guess": guess, "step": step}))
        session.report(
            {"error": abs(guess**3 - config["number"]), "guess": guess, "first": first, "step": step},
            checkpoint=Checkpoint.from_directory(str(directory)),
        )


def search(gate):
    return tune.Tuner(
        newton,
        param_space={"number": tune.grid_search([8, 27, 2]), "gate": gate},
        tune_config=tune.TuneConfig(metric="error", mode="min"),
        run_config=air.RunConfig(
            name="newton",
            failure_config=air.FailureConfig(max_failures=0),
            checkpoint_config=air.CheckpointConfig(num_to_keep=2),
            verbose=1,
        ),
    )


def main():
    ray.init(num_cpus=3)
    gate = os.path.abspath("gate")
    before = search(gate).fit()
    assert before.num_errors == 1 and before.num_terminated == 2
    (error,) = before.errors
    assert "no more digits" in str(error), error
    (failed,) = [result for result in before if result.error]
    assert failed.metrics["step"] == 1 and failed.config["number"] == 27, failed.metrics

    open(gate, "w").close()
    path = os.path.expanduser("~/ray_results/newton")
    assert tune.Tuner.can_restore(path)
    tuner = tune.Tuner.restore(path, trainable=newton, resume_errored=True)
    assert len(tuner.get_results()) == 3
    after = tuner.fit()
    assert after.num_errors == 0 and len(after) == 3, after.errors
    resumed = {result.config["number"]: result.metrics["first"] for result in after}
    assert resumed == {8: 0, 27: 2, 2: 0}, resumed
    roots = {str(result.config["number"]): round(result.metrics["guess"], 3) for result in after}
    assert all(result.metrics["step"] == STEPS - 1 for result in after)
    (repaired,) = [result for result in after if result.config["number"] == 27]
    assert list(repaired.metrics_dataframe["training_iteration"]) == [1, 2, 3, 4, 5]
    again = tune.Tuner.restore(path, trainable=newton).fit()
    guesses = [sorted(result.metrics["guess"] for result in grid) for grid in (after, again)]
    assert guesses[0] == guesses[1]
    print(json.dumps({"roots": roots, "resumed_at": resumed[27]}, sort_keys=True))


if __name__ == "__main__":
    main()
