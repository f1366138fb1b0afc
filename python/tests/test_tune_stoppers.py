"""Stoppers: when each of them stops a trial or the experiment, and what is taken as `stop`."""

import datetime
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from carril.exceptions import ConfigError, ConfigTypeError
from carril.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
    as_stopper,
)

NAN, INFINITY = float("nan"), float("inf")


def answers(stopper: Stopper, values: list[Any], trial: str = "a") -> list[bool]:
    return [stopper(trial, {"loss": value}) for value in values]


def test_a_trial_plateau_is_so_many_values_that_hardly_differ() -> None:
    stopper = TrialPlateauStopper("loss", std=0.1, num_results=3, grace_period=0)
    assert answers(stopper, [5, 1.0, 1.0]) == [False, False, False]
    assert answers(stopper, [9], "another trial") == [False]
    assert answers(stopper, [1.0]) == [True]
    assert not stopper.stop_all()


def test_no_plateau_within_the_grace_period() -> None:
    assert answers(TrialPlateauStopper("loss", num_results=2, grace_period=4), [1] * 4) == [False, False, False, True]


@pytest.mark.parametrize(
    ("mode", "values", "expected"), [("min", [3, 3, 1, 1], [0, 0, 0, 1]), ("max", [1, 1, 3, 3], [0, 0, 0, 1])]
)
def test_a_plateau_counts_only_beyond_the_threshold(mode: str, values: list[float], expected: list[int]) -> None:
    stopper = TrialPlateauStopper("loss", num_results=2, grace_period=0, metric_threshold=2, mode=mode)
    assert answers(stopper, values) == [bool(one) for one in expected]


@pytest.mark.parametrize("strange", [NAN, INFINITY])
def test_values_that_are_no_numbers_are_no_plateau(strange: float) -> None:
    assert answers(TrialPlateauStopper("loss", num_results=2, grace_period=0), [strange] * 3) == [False] * 3


def test_a_result_without_the_metric_does_not_count() -> None:
    stopper = TrialPlateauStopper("valid/loss", num_results=2, grace_period=0)
    assert not stopper("a", {"valid": {"loss": 1.0}})
    assert not stopper("a", {"valid": {}})
    assert not stopper("a", {"other": 1})
    assert stopper("a", {"valid": {"loss": 1.0}})


def test_the_experiment_stops_when_its_best_values_hardly_differ() -> None:
    stopper = ExperimentPlateauStopper("loss", std=0.1, top=3, mode="min")
    assert answers(stopper, [1.0, 5, 5, 1.0, NAN]) == [False] * 5
    assert not stopper.stop_all()
    assert answers(stopper, [1.05], "another trial") == [True]
    assert stopper.stop_all()


def test_the_best_are_the_greatest_with_max() -> None:
    assert answers(ExperimentPlateauStopper("loss", top=2, mode="max"), [9, 1, 1, 9]) == [False, False, False, True]


def test_a_better_value_ends_the_patience() -> None:
    stopper = ExperimentPlateauStopper("loss", top=2, patience=2)
    assert answers(stopper, [3, 3, 1, 1, 2]) == [False, False, False, False, True]


def test_a_trial_stops_at_its_last_iteration() -> None:
    stopper = MaximumIterationStopper(2)
    assert [stopper("a", {}), stopper("b", {}), stopper("a", {})] == [False, False, True]
    # After a restart, it is the trial that knows how far it has come.
    assert MaximumIterationStopper(5)("a", {"training_iteration": 5})


def test_time_runs_from_the_first_question_and_not_while_it_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stopper = TimeoutStopper(datetime.timedelta(seconds=10))
    clock[0] += 50
    assert not stopper.stop_all()
    clock[0] += 6
    assert not stopper.stop_all()
    assert not stopper("a", {})
    clock[0] += 1
    kept = pickle.dumps(stopper)
    clock[0] += 1000
    later: TimeoutStopper = pickle.loads(kept)
    assert not later.stop_all()
    clock[0] += 2.5
    assert not later.stop_all()
    clock[0] += 0.5
    assert later.stop_all()


def test_stoppers_together_all_see_every_result() -> None:
    stopper = CombinedStopper(FunctionStopper(lambda trial, result: result["loss"] > 8), MaximumIterationStopper(3))
    assert answers(stopper, [1, 9, 1]) == [False, True, True]
    assert not stopper.stop_all()

    class Ended(NoopStopper):
        def stop_all(self) -> bool:
            return True

    assert CombinedStopper(NoopStopper(), Ended()).stop_all()


def test_what_a_stopper_knows_is_pickled() -> None:
    stopper = CombinedStopper(
        TrialPlateauStopper("loss", num_results=2, grace_period=0), ExperimentPlateauStopper("loss", top=9)
    )
    assert answers(stopper, [1]) == [False]
    assert answers(pickle.loads(pickle.dumps(stopper)), [1]) == [True]


def more_than_two(trial_id: str, result: dict[str, Any]) -> bool:
    return bool(result["loss"] > 2)


def test_a_dict_is_rules_for_the_head() -> None:
    assert as_stopper({"training_iteration": 5, "valid/accuracy": 0.9, "done": True}) == (
        {"training_iteration": 5.0, "valid/accuracy": 0.9, "done": 1.0},
        None,
    )
    assert as_stopper(None) == ({}, None)
    assert as_stopper({}) == ({}, None)


def test_a_function_and_a_stopper_are_asked_for() -> None:
    rules, stopper = as_stopper(more_than_two)
    assert rules == {}
    assert stopper is not None
    assert answers(stopper, [2, 3]) == [False, True]
    own = NoopStopper()
    assert as_stopper(own) == ({}, own)


def test_a_list_stops_where_any_of_its_members_does() -> None:
    rules, stopper = as_stopper([{"loss": 5, "step": 9}, more_than_two, MaximumIterationStopper(2), {"loss": 3}, None])
    assert rules == {"loss": 3.0, "step": 9.0}
    assert stopper is not None
    assert answers(stopper, [1, 1]) == [False, True]


BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: as_stopper({"loss": "5"}), ConfigTypeError, r"`stop\['loss'\]` is a str: it must be a number"),
    (lambda: as_stopper({"loss": NAN}), ConfigError, "is NaN"),
    (lambda: as_stopper({3: 1}), ConfigTypeError, "the key 3"),
    (lambda: as_stopper(5), ConfigTypeError, "`stop` is an int: it must be a dict"),
    (lambda: as_stopper("loss"), ConfigTypeError, "`stop` is a str"),
    (lambda: as_stopper(NoopStopper), ConfigTypeError, r"make one: `NoopStopper\(…\)`"),
    (lambda: as_stopper(lambda result: True), ConfigTypeError, "does not take"),
    (lambda: CombinedStopper(more_than_two), ConfigTypeError, "it must be given stoppers"),  # type: ignore[arg-type]
    (lambda: FunctionStopper(NoopStopper), ConfigTypeError, "it must be given a function"),  # type: ignore[arg-type]
    (lambda: MaximumIterationStopper(0), ConfigError, "1 or more"),
    (lambda: TimeoutStopper(0), ConfigError, "above 0"),
    (lambda: TimeoutStopper("1h"), ConfigTypeError, "seconds or a `timedelta`"),  # type: ignore[arg-type]
    (lambda: TrialPlateauStopper("loss", std=0), ConfigError, "above 0"),
    (lambda: TrialPlateauStopper("loss", num_results=0), ConfigError, "num_results"),
    (lambda: TrialPlateauStopper("loss", metric_threshold=1), ConfigError, "`mode` is 'min' or 'max'"),
    (lambda: ExperimentPlateauStopper("loss", top=1), ConfigError, "2 or more"),
    (lambda: ExperimentPlateauStopper("loss", mode="least"), ConfigError, "'min' or 'max'"),
    (lambda: ExperimentPlateauStopper(""), ConfigTypeError, "the name of a metric"),
]


@pytest.mark.parametrize(("make", "error", "text"), BAD, ids=[text for _, _, text in BAD])
def test_bad_arguments_are_one_clear_error_each(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_stopper_without_its_methods_says_which_one_is_missing() -> None:
    class Half(Stopper):
        pass

    with pytest.raises(NotImplementedError, match="`Half` has no `__call__`"):
        Half()("a", {})
    with pytest.raises(NotImplementedError, match="`Half` has no `stop_all`"):
        Half().stop_all()


def test_a_nested_dict_of_limits_is_the_same_as_flattened_names() -> None:
    nested = {"a": {"b": 1, "c": {"d": 2.5}}, "e": 3}
    assert (
        as_stopper(nested) == as_stopper({"a/b": 1, "a/c/d": 2.5, "e": 3}) == ({"a/b": 1, "a/c/d": 2.5, "e": 3}, None)
    )
    with pytest.raises(ConfigTypeError, match="must be a number"):
        as_stopper({"a": {"b": "high"}})
    with pytest.raises(ConfigTypeError, match="name of a metric"):
        as_stopper({"a": {1: 2}})
