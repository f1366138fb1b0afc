"""Searchers: what the native ones send to the head, a user's own, and what stands around others.

The native ones search in Rust, where their tests are. LIMIT and REPEAT are those of the modules `concurrency_limiter` and
`repeater`, for searchers that are asked in Python.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carril import tune
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError
from carril.tune._space import Constants
from carril.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    GPSearch,
    Repeater,
    Searcher,
    TPESearch,
    create_searcher,
)
from carril.tune.search.repeater import TRIAL_INDEX
from carril.tune.search.searcher import lookup, measured

LIBRARIES = {
    "ax": ("AxSearch", "ax", "ax-platform"),
    "bayesopt": ("BayesOptSearch", "bayes_opt", "bayesian-optimization"),
    "bohb": ("TuneBOHB", "ConfigSpace", "hpbandster ConfigSpace"),
    "hebo": ("HEBOSearch", "hebo", "HEBO 'GPy>=1.13'"),
    "hyperopt": ("HyperOptSearch", "hyperopt", "hyperopt"),
    "nevergrad": ("NevergradSearch", "nevergrad", "nevergrad"),
    "optuna": ("OptunaSearch", "optuna", "optuna"),
    "zoopt": ("ZOOptSearch", "zoopt", "zoopt"),
}


class Counting(Searcher):
    """A user's own searcher: suggests 0, 1, 2 … and keeps what it gets."""

    def __init__(self, metric: str | None = "loss", mode: str | None = "min", last: int = 1_000) -> None:
        super().__init__(metric, mode)
        self.next = 0
        self.last = last
        self.told: list[Any] = []

    def suggest(self, trial_id: str) -> Any:
        if self.next > self.last:
            return Searcher.FINISHED
        self.next += 1
        return {"x": self.next - 1}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append(("result", trial_id, result))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append((trial_id, result, error))


def spec_of(searcher: Any) -> tuple[dict[str, Any], list[Any]]:
    constants = Constants()
    spec: dict[str, Any] = searcher._native_spec(constants)
    assert json.loads(json.dumps(spec)) == spec
    return spec, constants.values


def test_grids_and_chance_are_asked_in_the_head() -> None:
    spec, values = spec_of(BasicVariantGenerator([{"x": 1}, {"x": 2}], constant_grid_search=True, random_state=3))
    assert spec == {"basic": {"points_to_evaluate": [0, 1], "constant_grid_search": True, "seed": 3}}
    assert values == [{"x": 1}, {"x": 2}]
    spec, _ = spec_of(BasicVariantGenerator(max_concurrent=4))
    basic = {"basic": {"points_to_evaluate": [], "constant_grid_search": False, "seed": None}}
    assert spec == {"limited": {"searcher": basic, "max_concurrent": 4, "batch": False}}


def test_a_seed_may_come_from_a_generator() -> None:
    import random

    import numpy

    for make in (numpy.random.default_rng, numpy.random.RandomState, random.Random):
        first, again, other = (spec_of(BasicVariantGenerator(random_state=make(seed)))[0] for seed in (1, 1, 2))
        assert first == again != other


def test_the_metric_comes_from_the_searcher_or_from_the_experiment() -> None:
    tpe = TPESearch(points_to_evaluate=[{"x": 1}], n_startup=5, n_candidates=8, seed=1)
    assert tpe.set_search_properties("loss", "min", {"x": tune.uniform(0, 1)}) is True
    assert (tpe.metric, tpe.mode) == ("loss", "min")
    assert spec_of(tpe)[0] == {
        "tpe": {
            "points_to_evaluate": [0],
            "seed": 1,
            "metric": "loss",
            "mode": "min",
            "n_startup": 5,
            "n_candidates": 8,
        }
    }
    gp = GPSearch(metric="score", mode="max")
    assert gp.set_search_properties(None, None, {}) is True
    assert spec_of(gp)[0] == {
        "gaussian_process": {
            "points_to_evaluate": [],
            "seed": None,
            "metric": "score",
            "mode": "max",
            "n_startup": 10,
        }
    }


def test_a_space_that_is_there_twice_is_told() -> None:
    own = {"x": tune.uniform(0, 1)}
    for searcher in (TPESearch(own, "loss", "min"), ConcurrencyLimiter(TPESearch(own, "loss", "min"), 2)):
        assert searcher._space is own
        assert searcher.set_search_properties(None, None, {"y": tune.uniform(0, 1)}) is False
        assert searcher.set_search_properties(None, None, {"y": 1}) is True


def test_around_a_searcher_of_the_head_the_wrappers_are_of_the_head() -> None:
    inner = TPESearch(metric="loss", mode="max")
    spec, _ = spec_of(Repeater(ConcurrencyLimiter(inner, 3, batch=True), repeat=5, set_index=False))
    assert spec == {
        "repeated": {
            "searcher": {"limited": {"searcher": spec_of(inner)[0], "max_concurrent": 3, "batch": True}},
            "repeat": 5,
            "set_index": False,
            "metric": "loss",
            "mode": "max",
        }
    }
    assert not hasattr(Counting(), "_native_spec")
    assert not hasattr(ConcurrencyLimiter(Repeater(Counting()), 1), "_native_spec")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TPESearch(metric="a", mode="best"), "`mode` of `TPESearch` is 'best': it must be 'min' or 'max'"),
        (lambda: TPESearch(metric=3, mode="min"), "`metric` of `TPESearch` is an int: it must be a name"),  # type: ignore[arg-type]
        (lambda: TPESearch(metric=["a", "b"], mode=["min", "max"]), "`TPESearch` has one metric, and was given 2"),  # type: ignore[arg-type]
        (lambda: TPESearch(n_candidates=0), "`n_candidates` of `TPESearch` is 0: it must be at least 1"),
        (lambda: GPSearch(n_startup=1.5), "`n_startup` of `GPSearch` is a float: it must be a whole number"),  # type: ignore[arg-type]
        (lambda: GPSearch(seed="1"), "the seed of `GPSearch` is a str: it must be a whole number or a generator"),
        (lambda: GPSearch(seed=-1), "the seed of `GPSearch` is -1: it must be from 0 to 2**64 - 1"),
        (lambda: TPESearch(space=[1]), "`space` of `TPESearch` is a list: it must be a dict of parameters by name"),  # type: ignore[arg-type]
        (lambda: BasicVariantGenerator({"x": 1}), "`points_to_evaluate` of `BasicVariantGenerator` is a dict"),  # type: ignore[arg-type]
        (lambda: BasicVariantGenerator([3]), "`points_to_evaluate[0]` of `BasicVariantGenerator` is an int"),  # type: ignore[list-item]
        (
            lambda: TPESearch({"a": {"b": tune.grid_search([1, 2])}}),
            "`TPESearch` cannot use the `grid_search` of `a/b`\nhint: write `choice`",
        ),
        (
            lambda: GPSearch().set_search_properties("a", "min", {"b": tune.grid_search([1])}),
            "`GPSearch` cannot use the `grid_search` of `b`",
        ),
        (
            lambda: TPESearch(metric="a").set_search_properties("b", "min", {}),
            "`metric` is 'a' in `TPESearch` and 'b' in `TuneConfig`\nhint: give `metric` in one of them",
        ),
        (lambda: spec_of(TPESearch(metric="a")), "`TPESearch` does not know the `mode`\nhint: give `mode` to it or to"),
        (lambda: spec_of(Repeater(BasicVariantGenerator())), "`Repeater` does not know the `metric`"),
        (
            lambda: ConcurrencyLimiter(Counting(), 0),
            "`max_concurrent` of `ConcurrencyLimiter` is 0: it must be at least 1",
        ),
        (lambda: ConcurrencyLimiter(3, 1), "`ConcurrencyLimiter` was given an int: it must be a `Searcher`"),  # type: ignore[arg-type]
        (lambda: Repeater(Counting(), 0), "`repeat` of `Repeater` is 0: it must be at least 1"),
        (
            lambda: create_searcher("magic"),
            "there is no searcher 'magic': it must be one of ax, bayesopt, bohb, gp, hebo",
        ),
        (lambda: create_searcher("Optunna"), "\nhint: did you mean 'optuna'?"),
    ],
)
def test_what_cannot_be_is_one_error(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        make()


def test_a_searcher_of_the_head_says_that_it_cannot_be_asked_here() -> None:
    with pytest.raises(NotAvailableError, match="`TPESearch` suggests in the head, and cannot be asked from Python"):
        TPESearch().suggest("a")
    with pytest.raises(NotAvailableError, match="does not learn from points that were measured before"):
        TPESearch().add_evaluated_point({"x": 1}, 1.0)


@pytest.mark.parametrize("name", ["random", "variant_generator", "tpe", "TPE", "gp"])
def test_searchers_by_name(name: str) -> None:
    classes = {"tpe": TPESearch, "TPE": TPESearch, "gp": GPSearch}
    assert type(create_searcher(name)) is classes.get(name, BasicVariantGenerator)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_there_is_named_with_the_line_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, module, packages = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, module, None)
    text = f"`{owner}` needs the library `{module}`, which is not installed\nhint: `pip install {packages}`"
    with pytest.raises(ConfigError, match=re.escape(text)) as raised:
        create_searcher(name)
    assert isinstance(raised.value, ImportError)


def test_a_users_searcher_is_saved_and_goes_on(tmp_path: Path) -> None:
    searcher = Counting()
    assert searcher.suggest("a") == {"x": 0}
    searcher.on_trial_complete("a", {"loss": 1})
    searcher.save_to_dir(str(tmp_path), "old")
    assert searcher.suggest("b") == {"x": 1}
    searcher.save(tmp_path / "searcher-state-new.pkl")
    restored = Counting()
    restored.restore_from_dir(str(tmp_path))
    assert restored.suggest("c") == {"x": 2}
    assert restored.told == [("a", {"loss": 1}, False)]
    older = Counting()
    older.restore(tmp_path / "searcher-state-old.pkl")
    assert older.suggest("b") == {"x": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"searcher-state-old.pkl", "searcher-state-new.pkl"}
    with pytest.raises(ConfigError, match="holds no saved searcher"):
        (tmp_path / "empty").mkdir()
        restored.restore_from_dir(str(tmp_path / "empty"))


def test_a_users_searcher_need_not_call_the_base() -> None:
    class Small(Searcher):
        def __init__(self) -> None:
            pass

        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"x": trial_id}

    assert (Small().metric, Small().mode) == (None, None)
    assert Small().set_search_properties("loss", "min", {}) is False
    assert ConcurrencyLimiter(Small(), 1).suggest("a") == {"x": "a"}
    with pytest.raises(NotImplementedError):
        Small().on_trial_complete("a")


def test_earlier_trials_are_added_one_by_one() -> None:
    class Trial:
        def __init__(self, status: str, config: dict[str, Any], last_result: dict[str, Any] | None) -> None:
            self.status, self.config, self.last_result = status, config, last_result

    class Adding(Counting):
        def add_evaluated_point(
            self, parameters: Any, value: Any, error: bool = False, *more: Any, **named: Any
        ) -> None:
            self.told.append((parameters, value, error))

    trials = [
        Trial("TERMINATED", {"x": 1}, {"eval": {"loss": 2.0}}),
        Trial("ERROR", {"x": 2}, {"eval": {"loss": 3.0}}),
        Trial("RUNNING", {"x": 3}, {"eval": {"loss": 4.0}}),
        Trial("TERMINATED", {"x": 4}, None),
    ]
    searcher = Adding()
    ConcurrencyLimiter(searcher, 1).add_evaluated_trials(trials, "eval/loss")
    assert searcher.told == [({"x": 1}, 2.0, False), ({"x": 2}, 3.0, True)]


def test_metrics_are_found_by_their_flattened_names() -> None:
    result = {"a": {"b/c": {"d": 1}, "n": float("nan")}, "a/x": 2, "text": "3", "flag": True}
    assert lookup(result, "a/b/c/d") == 1
    assert lookup(result, "a/x") == 2
    assert lookup(result, "a/y") is None
    assert measured(result, "a/n") is None
    assert measured(result, "text") is None
    assert measured(result, "a") is None
    assert measured({"x": float("-inf")}, "x") is None
    assert measured(None, "x") is None
    assert measured(result, "a/x") == 2.0


def test_only_so_many_trials_run_at_a_time() -> None:
    """LIMIT-1"""
    inner = Counting(last=3)
    limiter = ConcurrencyLimiter(inner, 2)
    assert [limiter.suggest(name) for name in "abc"] == [{"x": 0}, {"x": 1}, None]
    limiter.on_trial_result("a", {"loss": 5})
    limiter.on_trial_result("unknown", {"loss": 6})
    limiter.on_trial_complete("a", {"loss": 5})
    limiter.on_trial_complete("a", {"loss": 5})
    assert inner.told == [("result", "a", {"loss": 5}), ("a", {"loss": 5}, False)]
    assert [limiter.suggest(name) for name in "cd"] == [{"x": 2}, None]
    limiter.on_trial_complete("b", error=True)
    limiter.on_trial_complete("c")
    assert [limiter.suggest(name) for name in "de"] == [{"x": 3}, Searcher.FINISHED]


def test_a_batch_is_learnt_from_when_it_is_whole() -> None:
    """LIMIT-2"""
    inner = Counting()
    limiter = ConcurrencyLimiter(inner, 2, batch=True)
    assert [limiter.suggest(name) for name in "ab"] == [{"x": 0}, {"x": 1}]
    limiter.on_trial_complete("b", {"loss": 2})
    assert (limiter.suggest("c"), inner.told) == (None, [])
    limiter.on_trial_complete("a", error=True)
    assert inner.told == [("b", {"loss": 2}, False), ("a", None, True)]
    assert limiter.suggest("c") == {"x": 2}


def test_each_suggestion_is_repeated_and_its_mean_is_told() -> None:
    """REPEAT-1, REPEAT-2"""
    inner = Counting()
    repeater = Repeater(inner, repeat=3)
    assert [repeater.suggest(name) for name in "abcd"] == [
        {"x": 0, TRIAL_INDEX: 0},
        {"x": 0, TRIAL_INDEX: 1},
        {"x": 0, TRIAL_INDEX: 2},
        {"x": 1, TRIAL_INDEX: 0},
    ]
    repeater.on_trial_result("b", {"loss": 100})
    repeater.on_trial_complete("b", {"loss": 3})
    repeater.on_trial_result("c", {"loss": 9})
    repeater.on_trial_complete("c")
    assert inner.told == []
    repeater.on_trial_complete("a", {"loss": float("nan")})
    assert inner.told == [("a", {"loss": 6.0}, False)]
    assert [repeater.suggest(name) for name in "ef"] == [{"x": 1, TRIAL_INDEX: 1}, {"x": 1, TRIAL_INDEX: 2}]
    for name in "def":
        repeater.on_trial_complete(name, {"loss": 1}, error=True)
    assert inner.told[1:] == [("d", None, True)]


def test_repeats_need_not_be_numbered_and_need_one_metric() -> None:
    repeater = Repeater(Counting(metric=None, mode=None), repeat=2, set_index=False)
    assert repeater.suggest("a") == repeater.suggest("b") == {"x": 0}
    with pytest.raises(ConfigError, match="`Repeater` needs one metric of which it takes the mean, and has None"):
        repeater.on_trial_complete("a", {"loss": 1})


def test_wrappers_are_saved_with_what_is_in_them(tmp_path: Path) -> None:
    limiter = ConcurrencyLimiter(Repeater(Counting(), repeat=2), 3)
    assert [limiter.suggest(name) for name in "abc"][2] == {"x": 1, TRIAL_INDEX: 0}
    limiter.on_trial_complete("a", {"loss": 1})
    limiter.save(tmp_path / "state")
    restored = ConcurrencyLimiter(Repeater(Counting(), repeat=2), 3)
    restored.restore(tmp_path / "state")
    for either in (limiter, restored):
        assert [either.suggest(name) for name in "de"] == [{"x": 1, TRIAL_INDEX: 1}, None]
        either.on_trial_complete("b", {"loss": 3})
        inner = either.searcher.searcher  # type: ignore[attr-defined]
        assert inner.told == [("a", {"loss": 2.0}, False)]


def test_a_wrapper_takes_the_metric_of_what_is_in_it() -> None:
    limiter = ConcurrencyLimiter(TPESearch(), 1)
    limiter.set_search_properties("loss", "max", {})
    assert (limiter.metric, limiter.mode) == ("loss", "max")


def test_the_names_of_the_module_are_there() -> None:
    import carril.tune.search as module

    assert all(inspect.isclass(getattr(module, name)) for name in module.__all__ if name != "create_searcher")
    assert module.sample.Float and module.optuna.OptunaSearch
    with pytest.raises(AttributeError, match="has no attribute 'gone'"):
        module.gone  # noqa: B018


def test_what_is_no_searcher_is_refused_by_its_type() -> None:
    with pytest.raises(ConfigTypeError):
        Repeater("optuna")  # type: ignore[arg-type]
