"""Searchers that stand for a library, with the library itself: what they suggest, learn, save and refuse.

LIB-1 to LIB-4 are those of `carril/tune/search/_library.py`. Optuna and HyperOpt are tested always. The others are tested
in long runs, each in an environment that is made for it with its current release, because they do not all fit into one:
HEBO needs an older numpy, and Nevergrad an older BayesOpt. Torch, which two of them need, is that of the tests.
"""

import math
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import carril
from carril import tune
from carril.exceptions import ConfigError
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune.search import Repeater, Searcher, create_searcher
from carril.tune.search.sample import is_valid

LONG = bool(os.environ.get("CARRIL_LONG"))

SEEDS = {
    "ax": "random_seed",
    "bayesopt": "random_state",
    "bohb": "seed",
    "hebo": "random_state_seed",
    "hyperopt": "random_state_seed",
    "optuna": "seed",
    "zoopt": "seed",
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "bayesopt": {"random_search_steps": 6},
    "hyperopt": {"n_initial_points": 6},
    "nevergrad": {"optimizer": "TwoPointsDE", "optimizer_kwargs": {"budget": 40}},
    "zoopt": {"budget": 40, "parallel_num": 4},
}
PACKAGES = {
    "ax": ["ax-platform"],
    "bayesopt": ["bayesian-optimization"],
    "bohb": ["hpbandster", "ConfigSpace"],
    "hebo": ["HEBO", "GPy>=1.13"],
    "nevergrad": ["nevergrad"],
    "zoopt": ["zoopt"],
}
CONDITIONAL = {"bohb", "hyperopt", "nevergrad", "optuna"}
# How many results the library itself has.
OBSERVED: dict[str, Callable[[Any], int]] = {
    "ax": lambda searcher: sum(trial.status.is_completed for trial in searcher._client.experiment.trials.values()),
    "bayesopt": lambda searcher: len(searcher._optimizer.space),
    "bohb": lambda searcher: sum(map(len, searcher._generator.losses.values())),
    "hebo": lambda searcher: len(searcher._optimizer.X),
    "hyperopt": lambda searcher: sum(loss is not None for loss in searcher._history.losses()),
    "nevergrad": lambda searcher: searcher._optimizer.num_tell,
    "optuna": lambda searcher: sum(trial.state.name == "COMPLETE" for trial in searcher._study.trials),
    "zoopt": lambda searcher: searcher._optimizer.complete_num,
}
# The others draw from generators of their own in a model that is refitted.
REPEATABLE = {"bayesopt", "bohb", "hyperopt", "nevergrad", "optuna", "zoopt"}


def bowl(name: str) -> dict[str, Any]:
    """A space of every kind that the library knows."""
    space: dict[str, Any] = {
        "x": tune.uniform(-5, 5),
        "model": {"width": tune.randint(1, 9), "depth": 3},
        "rate": tune.loguniform(1e-4, 1e-1),
        "double": tune.sample_from(lambda spec: spec.config.model.width * 2),
    }
    if name != "ax":  # it takes half a minute for each further parameter
        space |= {"step": tune.qrandint(0, 20, 5), "noise": tune.randn(0, 2), "quarter": tune.quniform(0, 1, 0.25)}
    if name != "bayesopt":
        space["kind"] = tune.choice(["good", "bad", None])
    if name in CONDITIONAL:
        deep = {"layers": tune.lograndint(1, 64), "drops": [tune.uniform(0, 1), 0.5]}
        space["net"] = tune.choice([{"layers": 0}, deep])
    return space


def loss_of(config: dict[str, Any]) -> float:
    loss = float((config["x"] - 1) ** 2 + (math.log10(config["rate"]) + 2) ** 2 + 0.1 * config["model"]["width"])
    return loss + (2 if config.get("kind") == "bad" else 0)


def made(name: str, **more: Any) -> Any:
    seed = {SEEDS[name]: 3} if name in SEEDS else {}
    return create_searcher(name, **{"metric": "loss", "mode": "min", **seed, **ARGUMENTS.get(name, {}), **more})


class Session:
    """Trials one after the other, as the driver runs them."""

    def __init__(self, searcher: Any, space: dict[str, Any], sign: int = 1) -> None:
        self.searcher, self.space, self.sign = searcher, space, sign
        self.number = 0
        self.losses: list[float] = []

    def suggest(self) -> tuple[str, Any]:
        trial = f"trial_{self.number}"
        self.number += 1
        return trial, self.searcher.suggest(trial)

    def run(self, count: int, failed: tuple[int, ...] = (), broken: tuple[int, ...] = ()) -> list[dict[str, Any]]:
        configs = []
        for _ in range(count):
            trial, config = self.suggest()
            assert isinstance(config, dict), f"{trial} got {config!r}"
            assert is_valid(self.space, config), config
            assert config["double"] == 2 * config["model"]["width"] and config["model"]["depth"] == 3
            loss = math.nan if self.number in broken else loss_of(config)
            self.losses.append(loss)
            configs.append(config)
            result = {"loss": self.sign * loss, "training_iteration": 1}
            self.searcher.on_trial_result(trial, result)
            if self.number in failed:
                self.searcher.on_trial_complete(trial, None, True)
            else:
                self.searcher.on_trial_complete(trial, result)
        return configs


def searches_and_goes_on(name: str, directory: Path) -> None:
    """20 trials of which some fail, then a save, and both the old and the restored one go on."""
    space = bowl(name)
    searcher = made(name, points_to_evaluate=[{"x": 2.0, "model/width": 3}, {"model": {"width": 4}, "rate": 0.01}])
    assert searcher.set_search_properties(None, None, space) is True
    session = Session(searcher, space)
    configs = session.run(20, failed=(5,), broken=(6,))
    assert (configs[0]["x"], configs[0]["model"]["width"]) == (2.0, 3)
    assert (configs[1]["model"]["width"], configs[1]["rate"]) == (4, 0.01)
    seen = [loss for loss in session.losses if not math.isnan(loss)]
    assert min(seen[10:]) < statistics.median(seen[:10]), seen
    searcher.on_trial_complete("a trial of somebody else", {"loss": -1e9})

    searcher.save(directory / "state")
    restored = made(name)
    restored.restore(directory / "state")
    old, new = session.run(3), Session(restored, space)
    new.number = 20
    if name in REPEATABLE:
        assert new.run(3) == old
    else:
        new.run(3)


def runs_several_at_a_time(name: str) -> None:
    space = bowl(name)
    searcher, again = made(name), made(name)
    assert searcher.set_search_properties("loss", "min", space) and again.set_search_properties("loss", "min", space)
    session, other = Session(searcher, space), Session(again, space)
    started = [session.suggest() for _ in range(3)]
    assert len({config["x"] for _, config in started}) == 3
    if name in SEEDS:
        assert [config for _, config in started] == [other.suggest()[1] for _ in range(3)]
    for trial, config in reversed(started):
        searcher.on_trial_result(trial, {"loss": loss_of(config), "training_iteration": 1})
        searcher.on_trial_complete(trial)
    session.run(1)


def learns_what_was_measured_before(name: str) -> None:
    space = bowl(name)
    searcher = made(name)
    searcher.set_search_properties(None, None, space)
    source = Session(made(name), space)
    source.searcher.set_search_properties(None, None, space)
    for config in source.run(2):
        searcher.add_evaluated_point(config, loss_of(config))
    Session(searcher, space).run(1)
    with pytest.raises(ConfigError, match="a point that was measured before has no valid `x`"):
        searcher.add_evaluated_point({"x": 99.0, "model": {"width": 3}}, 1.0)


def refuses(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot use the `grid_search` of `a/b`"):
        made(name).set_search_properties(None, None, {"a": {"b": tune.grid_search([1, 2])}})
    with pytest.raises(ConfigError, match="names `gone`, which the search space does not have"):
        made(name, points_to_evaluate=[{"gone": 1}]).set_search_properties(None, None, bowl(name))
    with pytest.raises(ConfigError, match="does not know the `metric`"):
        made(name, metric=None, mode=None).set_search_properties(None, None, bowl(name))
    with pytest.raises(ConfigError, match="has no search space"):
        made(name).suggest("a")
    with pytest.raises(ConfigError, match="has nothing to draw"):
        made(name).set_search_properties(None, None, {"a": 1})
    with pytest.raises(ConfigError, match="`metric` is 'loss' in `"):
        made(name).set_search_properties("other", None, bowl(name))
    if name not in CONDITIONAL and name != "bayesopt":
        with pytest.raises(ConfigError, match="cannot search `net/1/width`, which exists only with one option"):
            made(name).set_search_properties(None, None, {"net": tune.choice([1, {"width": tune.uniform(0, 1)}])})
    if name == "bayesopt":
        with pytest.raises(ConfigError, match="`BayesOptSearch` searches numbers, and `a` is a `choice`"):
            made(name).set_search_properties(None, None, {"a": tune.choice([1, 2])})


def takes_its_own_space(name: str) -> None:
    """The library's own way to write `x` between 0 and 1 and a kind of two, the first trial at 0.25."""
    point: dict[str, Any] = {"x": 0.25, "kind": "b"}
    if name == "ax":
        numbers = {"name": "x", "type": "range", "bounds": [0.0, 1.0]}
        space: Any = [numbers, {"name": "kind", "type": "choice", "values": ["a", "b"]}]
    elif name == "bayesopt":
        space, point = {"x": (0, 1)}, {"x": 0.25}
    elif name == "bohb":
        import ConfigSpace

        space = ConfigSpace.ConfigurationSpace({"x": (0.0, 1.0), "kind": ["a", "b"]}, seed=1)
    elif name == "hebo":
        from hebo.design_space.design_space import DesignSpace

        numbers = {"name": "x", "type": "num", "lb": 0, "ub": 1}
        space = DesignSpace().parse([numbers, {"name": "kind", "type": "cat", "categories": ["a", "b"]}])
    elif name == "nevergrad":
        import nevergrad

        space = nevergrad.p.Dict(x=nevergrad.p.Scalar(lower=0, upper=1), kind=nevergrad.p.Choice(["a", "b"]))
    elif name == "zoopt":
        from zoopt import ValueType

        space = {"x": (ValueType.CONTINUOUS, [0, 1], 1e-3), "kind": (ValueType.GRID, ["a", "b"])}
    else:
        from hyperopt import hp

        space = {"x": hp.uniform("x", 0, 1), "kind": hp.choice("kind", ["a", "b"])}
    where = "dim_dict" if name == "zoopt" else "space"
    searcher = made(name, points_to_evaluate=[point], **{where: space})
    assert searcher.set_search_properties(None, None, {"constant": 1}) is True
    assert searcher.set_search_properties(None, None, {"y": tune.uniform(0, 1)}) is False
    assert searcher.suggest("0") == point
    searcher.on_trial_complete("0", {"loss": 1.0})
    for number in range(1, 4):
        config = searcher.suggest(str(number))
        assert set(config) == set(point) and 0 <= config["x"] <= 1 and config.get("kind", "a") in ("a", "b")
        searcher.on_trial_complete(str(number), {"loss": config["x"]})


def listening(searcher: Any) -> tuple[list[tuple[str, float]], dict[str, float]]:
    """What the searcher hears from now on: the reports, and the trials that have ended."""
    reports: list[tuple[str, float]] = []
    ended: dict[str, float] = {}

    class Listening(type(searcher)):  # type: ignore[misc]
        def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
            reports.append((trial_id, result["loss"]))
            super().on_trial_result(trial_id, result)

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            assert trial_id not in ended and not error
            ended[trial_id] = result["loss"]
            super().on_trial_complete(trial_id, result, error)

    searcher.__class__ = Listening
    return reports, ended


def runs_twenty_trials(name: str, directory: Path) -> None:
    """A whole search, several trials at a time, of which the searcher hears everything once."""
    space, searcher = bowl(name), made(name)
    reports, ended = listening(searcher)

    def train(config: dict[str, Any]) -> None:
        for step in (2, 1, 0):
            tune.report({"loss": loss_of(config) + step})

    carril.init(num_cpus=4)
    try:
        grid = Tuner(
            train,
            param_space=space,
            tune_config=TuneConfig(num_samples=20, search_alg=searcher, max_concurrent_trials=3),
            run_config=RunConfig(name=name, storage_path=str(directory), verbose=0),
        ).fit()
    finally:
        carril.shutdown()
    assert (len(grid), grid.num_terminated, grid.errors) == (20, 20, [])
    losses = {result.trial_id: result.metrics["loss"] for result in grid}
    for result in grid:
        assert is_valid(space, result.config), result.config
        assert losses[result.trial_id] == loss_of(result.config)
    assert ended == losses
    assert sorted(reports) == sorted((trial, loss + step) for trial, loss in losses.items() for step in (0, 1, 2))
    assert OBSERVED[name](searcher) == 20
    best = grid.get_best_result("loss", "min")
    assert (best.trial_id, best.metrics["loss"]) == min(losses.items(), key=lambda item: item[1])


CHECKS: dict[str, Callable[[str, Path], None]] = {
    "searches_and_goes_on": searches_and_goes_on,
    "runs_several_at_a_time": lambda name, _: runs_several_at_a_time(name),
    "learns_what_was_measured_before": lambda name, _: learns_what_was_measured_before(name),
    "refuses": lambda name, _: refuses(name),
    "runs_twenty_trials": runs_twenty_trials,
    "takes_its_own_space": lambda name, _: None if name == "optuna" else takes_its_own_space(name),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["optuna", "hyperopt"])
def test_a_library_searches(name: str, check: str, tmp_path: Path) -> None:
    CHECKS[check](name, tmp_path)


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The Python of an environment with the packages of a library, and behind them what the tests have."""
    place = tmp_path / "environment"
    uv = str(Path(sys.executable).parent / "uv")
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True, env=own)
    without_torch = tmp_path / "overrides.txt"
    without_torch.write_text("torch ; python_version < '3'\n")
    install = [uv, "pip", "install", "--quiet", "--python", str(place), "--overrides", str(without_torch)]
    subprocess.run([*install, *PACKAGES[request.param]], check=True, env=own)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "what_the_tests_have.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield place / "bin" / "python"
    shutil.rmtree(place)


if LONG:

    @pytest.mark.parametrize("environment", PACKAGES, indirect=True)
    def test_a_library_in_its_own_environment_searches(
        environment: Path, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        name = request.node.callspec.params["environment"]
        command = [str(environment), __file__, name, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if line in CHECKS] == list(CHECKS)


@pytest.mark.parametrize("name", ["optuna", "hyperopt"])
def test_what_is_to_be_large_becomes_large(name: str) -> None:
    space = bowl(name)
    searcher = made(name, mode="max")
    searcher.set_search_properties("loss", None, space)
    session = Session(searcher, space, sign=-1)
    session.run(40)
    assert statistics.mean(session.losses[20:]) < statistics.mean(session.losses[:20]), session.losses


@pytest.mark.parametrize("name", ["optuna", "hyperopt"])
def test_a_point_out_of_the_space_is_evaluated_and_not_learnt_from(name: str) -> None:
    space = bowl(name)
    searcher = made(name, points_to_evaluate=[{"x": 99.0}, {"model/depth": 7, "x": 1.5}])
    searcher.set_search_properties(None, None, space)
    assert searcher.suggest("a")["x"] == 99.0
    searcher.on_trial_result("a", {"loss": -1e9, "training_iteration": 1})
    searcher.on_trial_complete("a", {"loss": -1e9})
    second = searcher.suggest("b")
    assert (second["model"]["depth"], second["x"]) == (7, 1.5)
    searcher.on_trial_complete("b", {"loss": 1.0})
    assert Session(searcher, space).run(1)


@pytest.mark.parametrize("name", ["optuna", "hyperopt"])
def test_around_a_library_the_wrappers_are_asked_in_python(name: str) -> None:
    searcher = Repeater(made(name), repeat=2, set_index=False)
    assert searcher.set_search_properties(None, None, bowl(name)) is True
    first, second = searcher.suggest("a"), searcher.suggest("b")
    assert first == second
    searcher.on_trial_complete("a", {"loss": 1.0})
    searcher.on_trial_complete("b", {"loss": 2.0})
    assert searcher.suggest("c") != first


def test_optuna_has_several_metrics_and_takes_a_sampler() -> None:
    import optuna

    sampler = optuna.samplers.NSGAIISampler(seed=1, population_size=4)
    searcher = create_searcher("optuna", metric=["loss", "size"], mode=["min", "max"], sampler=sampler)
    assert searcher.set_search_properties(None, None, {"x": tune.uniform(0, 1)}) is True
    for number in range(12):
        x = searcher.suggest(str(number))["x"]
        searcher.on_trial_result(str(number), {"loss": x, "size": x})
        searcher.on_trial_complete(str(number), {"loss": x, "size": x} if number != 3 else {"loss": x})
    states = [trial.state.name for trial in searcher._study.trials]
    assert states == ["COMPLETE"] * 3 + ["FAIL"] + ["COMPLETE"] * 8
    assert [direction.name for direction in searcher._study.directions] == ["MINIMIZE", "MAXIMIZE"]
    with pytest.raises(ConfigError, match="has 2 metrics and 1 modes: each metric needs a mode"):
        create_searcher("optuna", metric=["loss", "size"], mode="min")
    with pytest.raises(ConfigError, match="was given `sampler` and `seed`"):
        create_searcher("optuna", sampler=sampler, seed=1)
    with pytest.raises(ConfigError, match="`sampler` of `OptunaSearch` is a str: it must be one of Optuna's"):
        create_searcher("optuna", sampler="tpe")


def test_optuna_takes_a_function_as_a_space(tmp_path: Path) -> None:
    def space(trial: Any) -> dict[str, Any]:
        if trial.suggest_categorical("kind", ["deep", "wide"]) == "deep":
            trial.suggest_int("layers", 1, 5)
        return {"constant": 7}

    searcher = create_searcher(
        "optuna", space=space, metric="loss", mode="min", seed=1, points_to_evaluate=[{"kind": "deep", "layers": 4}]
    )
    assert searcher.suggest("0") == {"kind": "deep", "layers": 4, "constant": 7}
    searcher.on_trial_complete("0", {"loss": 1})
    configs = [searcher.suggest(str(number)) for number in range(1, 12)]
    assert {frozenset(config) for config in configs} == {
        frozenset(("kind", "constant")),
        frozenset(("kind", "layers", "constant")),
    }
    searcher.save(tmp_path / "state")
    restored = create_searcher("optuna", space=space, metric="loss", mode="min")
    restored.restore(tmp_path / "state")
    assert restored.suggest("x") == searcher.suggest("x")
    with pytest.raises(ConfigError, match="a space that is a function has no distributions"):
        searcher.add_evaluated_point({"kind": "wide"}, 1.0)


def test_optuna_takes_its_own_distributions_and_rewards() -> None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    space = {"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(["a", "b"])}
    points = [{"x": 0.5, "kind": "a"}, {"x": 0.25, "kind": "b"}]
    searcher = create_searcher(
        "optuna", space=space, metric="loss", mode="min", points_to_evaluate=points, evaluated_rewards=[3, 4.0]
    )
    assert set(searcher.suggest("0")) == {"x", "kind"}
    assert [trial.value for trial in searcher._study.trials] == [3.0, 4.0, None]
    searcher.add_evaluated_point({"x": 0.1, "kind": "a"}, math.nan)
    searcher.add_evaluated_point({"x": 0.1, "kind": "a"}, 2.0, pruned=True, intermediate_values=[4.0, 2.0])
    assert [trial.state.name for trial in searcher._study.trials[3:]] == ["FAIL", "PRUNED"]
    with pytest.raises(ConfigError, match="has 2 points to evaluate and 1 rewards of them"):
        create_searcher("optuna", points_to_evaluate=points, evaluated_rewards=[3])
    with pytest.raises(ConfigError, match="`y` in `space` of `OptunaSearch` is an int: it must be one of Optuna's"):
        create_searcher("optuna", space={"x": FloatDistribution(0, 1), "y": 3})


def test_optuna_keeps_a_study_in_a_storage_with_what_happened_on_the_way(tmp_path: Path) -> None:
    import optuna

    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal")))
    searcher = create_searcher("optuna", metric="loss", mode="min", storage=storage, study_name="mine")
    searcher.set_search_properties(None, None, {"x": tune.uniform(0, 1), "log": tune.qloguniform(7, 98, 7)})
    config = searcher.suggest("a")
    assert config["log"] % 7 == 0
    for step in (1, 2):
        searcher.on_trial_result("a", {"loss": 1 / step, "training_iteration": step})
    searcher.on_trial_complete("a", {"loss": 0.5})
    [trial] = optuna.load_study(study_name="mine", storage=storage).trials
    assert (trial.value, trial.intermediate_values, trial.params["x"]) == (0.5, {1: 1.0, 2: 0.5}, config["x"])


def test_hyperopt_refuses_a_share_that_is_none() -> None:
    with pytest.raises(ConfigError, match="`gamma` of `HyperOptSearch` is 1: it must be between 0 and 1"):
        create_searcher("hyperopt", gamma=1)


def test_the_options_of_a_choice_may_be_any_objects() -> None:
    first, second = object(), object()
    for name in ("optuna", "hyperopt"):
        searcher = made(name, points_to_evaluate=[{"object": second}])
        searcher.set_search_properties(
            None, None, {"object": tune.choice([first, second]), "flag": tune.choice([True, 1])}
        )
        assert searcher.suggest("0")["object"] is second
        found = [searcher.suggest(str(number)) for number in range(1, 20)]
        assert {id(config["object"]) for config in found} == {id(first), id(second)}
        assert {str(config["flag"]) for config in found} == {"True", "1"}
        assert Searcher.FINISHED not in found


if __name__ == "__main__":
    for title, check in CHECKS.items():
        check(sys.argv[1], Path(sys.argv[2]))
        print(title, flush=True)
