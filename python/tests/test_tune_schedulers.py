"""Schedulers in Python: their arguments, the errors for bad ones, and the description that the head gets of each.

What they decide is tested where it is decided, in Rust.
"""

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError
from carril.tune._space import Constants, choice, sample_from, uniform
from carril.tune.schedulers import (
    PB2,
    ASHAScheduler,
    AsyncHyperBandScheduler,
    DistributeResources,
    DistributeResourcesToTopJob,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
    create_scheduler,
)
from carril.tune.schedulers._trial import Controller, Trial
from carril.tune.trainable import PlacementGroupFactory


def spec(
    scheduler: Any, metric: str | None = "loss", mode: str | None = "min", constants: Constants | None = None
) -> dict[str, Any]:
    """The description of a scheduler, as it is after the way to the head."""
    found: dict[str, Any] = json.loads(json.dumps(scheduler._native_spec(constants or Constants(), metric, mode)))
    return found


def pbt(**arguments: Any) -> PopulationBasedTraining:
    return PopulationBasedTraining(**{"hyperparam_mutations": {"lr": [0.1, 0.2]}, **arguments})


def test_asha_is_described_with_the_defaults_that_scripts_rely_on() -> None:
    assert spec(ASHAScheduler()) == {
        "asha": {
            "time_attr": "training_iteration",
            "metric": "loss",
            "mode": "min",
            "max_t": 100.0,
            "grace_period": 1.0,
            "reduction_factor": 4.0,
            "brackets": 1,
            "stop_last_trials": True,
            "seed": None,
        }
    }
    assert AsyncHyperBandScheduler is ASHAScheduler


@pytest.mark.parametrize(("kind", "bohb"), [(HyperBandScheduler, False), (HyperBandForBOHB, True)])
def test_hyperband_is_described_and_its_form_for_bohb_says_so(kind: type[HyperBandScheduler], bohb: bool) -> None:
    assert spec(kind(max_t=27)) == {
        "hyperband": {
            "time_attr": "training_iteration",
            "metric": "loss",
            "mode": "min",
            "max_t": 27.0,
            "reduction_factor": 3.0,
            "stop_last_trials": True,
            "bohb": bohb,
        }
    }


def test_median_stopping_is_described() -> None:
    assert spec(MedianStoppingRule(hard_stop=False)) == {
        "median_stopping": {
            "time_attr": "time_total_s",
            "metric": "loss",
            "mode": "min",
            "grace_period": 60.0,
            "min_samples_required": 3,
            "min_time_slice": 0.0,
            "hard_stop": False,
        }
    }


def test_a_schedulers_own_metric_and_mode_go_before_those_of_the_experiment() -> None:
    found = spec(ASHAScheduler(metric="accuracy", mode="max"), "loss", "min")["asha"]
    assert (found["metric"], found["mode"]) == ("accuracy", "max")


def test_without_a_metric_the_error_names_the_scheduler() -> None:
    with pytest.raises(ConfigError, match=r"`ASHAScheduler` has no `metric` and no `mode`") as raised:
        spec(ASHAScheduler(), None, None)
    assert "TuneConfig" in raised.value.hints[0]
    with pytest.raises(ConfigError, match=r"`MedianStoppingRule` has no `mode`"):
        spec(MedianStoppingRule(metric="loss"), None, None)
    assert spec(FIFOScheduler(), None, None) == {"fifo": {}}


def test_mutations_are_described_by_their_kinds() -> None:
    constants = Constants()
    scheduler = pbt(
        hyperparam_mutations={
            "lr": uniform(0.1, 1),
            "size": [16, "full"],
            "kind": choice(["a", "b"]),
            "inner": {"width": (1, 2), "seed": lambda: 7},
            "drawn": sample_from(lambda _: 8),
        },
        seed=3,
    )
    found = spec(scheduler, constants=constants)["pbt"]
    mutations = dict(found.pop("mutations"))
    assert mutations["lr"] == {"domain": {"uniform": [0.1, 1.0]}}
    assert [constants.values[index] for index in mutations["size"]["choices"]] == [16, "full"]
    options = [node["constant"] for node in mutations["kind"]["domain"]["choice"]]
    assert [constants.values[index] for index in options] == ["a", "b"]
    inner = dict(mutations["inner"]["map"])
    assert [constants.values[index] for index in inner["width"]["choices"]] == [1, 2]
    assert (inner["seed"], mutations["drawn"]) == ("ask", "ask")
    assert found == {
        "time_attr": "time_total_s",
        "metric": "loss",
        "mode": "min",
        "perturbation_interval": 60.0,
        "burn_in_period": 0.0,
        "quantile_fraction": 0.25,
        "synch": False,
        "seed": 3,
        "resample_probability": 0.25,
        "perturbation_factors": [1.2, 0.8],
        "custom_explore": False,
    }
    assert {path: function() for path, function in scheduler._functions.items()} == {
        ("inner", "seed"): 7,
        ("drawn",): 8,
    }


def test_an_explore_function_alone_is_enough_to_change_something() -> None:
    def explore(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "lr": 1}

    scheduler = PopulationBasedTraining(custom_explore_fn=explore)
    found = spec(scheduler)["pbt"]
    assert (found["mutations"], found["custom_explore"]) == ([], True)
    assert scheduler.custom_explore_fn is explore


def test_pb2_is_described_with_its_bounds_under_flat_names() -> None:
    found = spec(PB2(hyperparam_bounds={"lr": [1e-4, 1], "net": {"width": (1, 9)}}, seed=1))["pb2"]
    assert found["bounds"] == [["lr", [1e-4, 1.0]], ["net/width", [1.0, 9.0]]]
    assert "mutations" not in found
    assert (found["seed"], found["custom_explore"]) == (1, False)


def change(trial: str, source: str, step: int, before: float, after: float) -> str:
    return json.dumps([trial, source, step, step, {"lr": before}, {"lr": after}]) + "\n"


def replay(path: Path, *lines: str) -> PopulationBasedTrainingReplay:
    file = path / "pbt_policy_1.txt"
    file.write_text("".join(lines))
    return PopulationBasedTrainingReplay(str(file))


def test_a_replay_follows_the_line_of_the_last_change(tmp_path: Path) -> None:
    # Trial 1 went on from 2 and then from 3: the first of these was undone. Trial 3 had gone on from 4.
    lines = (change("1", "2", 5, 0.1, 0.2), change("3", "4", 6, 0.4, 0.5), change("1", "3", 10, 0.5, 0.6))
    constants = Constants()
    found = spec(replay(tmp_path, *lines), None, None, constants)["replay"]
    assert constants.values[found["start"]] == {"lr": 0.4}
    assert [(step, constants.values[index]) for step, index in found["changes"]] == [
        (6, {"lr": 0.5}),
        (10, {"lr": 0.6}),
    ]


def test_a_policy_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        PopulationBasedTrainingReplay(tmp_path / "missing.txt")
    with pytest.raises(ConfigError, match="is empty"):
        replay(tmp_path)
    with pytest.raises(ConfigError, match="line 2 of the policy file"):
        replay(tmp_path, change("1", "2", 5, 0.1, 0.2), '["1"]\n')
    with pytest.raises(ConfigError, match="steps out of order"):
        replay(tmp_path, change("2", "3", 9, 0.1, 0.2), change("1", "2", 5, 0.2, 0.3))


def test_resources_change_over_a_base_scheduler() -> None:
    evenly = ResourceChangingScheduler(ASHAScheduler(), DistributeResources(increase_by={"cpu": 2}))
    found = spec(evenly)["resource_changing"]
    assert found["base"] == spec(ASHAScheduler())
    assert found["allocation"] == {"evenly": {"increase_by": {"CPU": 2.0}, "increase_by_times": None, "reserve": {}}}
    top = DistributeResourcesToTopJob(increase_by_times=3, reserve_resources={"GPU": 1})
    assert spec(ResourceChangingScheduler(resources_allocation_function=top))["resource_changing"] == {
        "base": {"fifo": {}},
        "allocation": {
            "to_the_top": {
                "increase_by": {},
                "increase_by_times": 3,
                "reserve": {"GPU": 1.0},
                "metric": "loss",
                "mode": "min",
            }
        },
    }


def test_without_an_allocation_the_base_scheduler_is_alone() -> None:
    assert spec(ResourceChangingScheduler(None, None), None, None) == {"fifo": {}}


BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ASHAScheduler(max_t=5, grace_period=10), ConfigError, "`max_t` must not be below `grace_period`"),
    (lambda: ASHAScheduler(reduction_factor=1), ConfigError, r"reduction_factor=1\)`: it must be a number above 1"),
    (lambda: ASHAScheduler(brackets=0), ConfigError, r"brackets=0\)`: it must be a number from 1 to 64"),
    (lambda: ASHAScheduler(brackets=65), ConfigError, r"brackets=65\)`"),
    (lambda: ASHAScheduler(brackets=1.5), ConfigTypeError, "`ASHAScheduler.brackets=….` is a float"),  # type: ignore[arg-type]
    (lambda: ASHAScheduler(max_t=float("inf")), ConfigError, r"max_t=inf\)`"),
    (lambda: ASHAScheduler(max_t="9"), ConfigTypeError, "is a str: it must be a number above 0"),  # type: ignore[arg-type]
    (lambda: ASHAScheduler(mode="least"), ConfigError, "it must be 'min' or 'max'"),
    (lambda: ASHAScheduler(time_attr=""), ConfigTypeError, "time_attr"),
    (lambda: HyperBandScheduler(max_t=0.5), ConfigError, "at least 1"),
    (lambda: MedianStoppingRule(min_samples_required=0), ConfigError, "1 or more"),
    (lambda: MedianStoppingRule(grace_period=-1), ConfigError, "0 or more"),
    (lambda: PopulationBasedTraining(), ConfigError, "`PopulationBasedTraining` has nothing to change"),
    (lambda: PopulationBasedTraining(hyperparam_mutations={}), ConfigError, "nothing to change"),
    (lambda: pbt(quantile_fraction=0.6), ConfigError, "from 0 to 0.5"),
    (lambda: pbt(perturbation_interval=0), ConfigError, "above 0"),
    (lambda: pbt(resample_probability=2), ConfigError, "from 0 to 1"),
    (lambda: pbt(perturbation_factors=()), ConfigTypeError, "a list of numbers"),
    (lambda: pbt(perturbation_factors=(1.2, 0)), ConfigError, "above 0"),
    (lambda: pbt(custom_explore_fn=3), ConfigTypeError, "takes a config and returns one"),
    (lambda: pbt(synch="yes"), ConfigTypeError, "True or False"),
    (lambda: pbt(hyperparam_mutations={"a": {"b": []}}), ConfigError, "`a/b` with an empty list"),
    (lambda: pbt(hyperparam_mutations={"a": {}}), ConfigError, "`a` with an empty dict"),
    (lambda: pbt(hyperparam_mutations={"a": 3}), ConfigTypeError, "`a` with an int"),
    (lambda: pbt(hyperparam_mutations={"a": {"grid_search": [1]}}), ConfigError, "`a` with a `grid_search`"),
    (lambda: pbt(hyperparam_mutations=["a"]), ConfigTypeError, "is a list: it must be a dict"),
    (lambda: PB2(), ConfigError, "`PB2` has nothing to look for"),
    (lambda: PB2(hyperparam_bounds={"a": {"b": [1]}}), ConfigTypeError, r"`a/b` with \[1\]"),
    (lambda: PB2(hyperparam_bounds={"a": [2, 1]}), ConfigError, "the least must be below the most"),
    (lambda: PB2(hyperparam_bounds={"a": [0, float("inf")]}), ConfigError, "two finite numbers"),
    (lambda: DistributeResources(increase_by={"CPU": -1}), ConfigError, "an amount is a number, 0 or more"),
    (lambda: DistributeResources(increase_by_times=-2), ConfigError, "-1 for no limit"),
    (lambda: ResourceChangingScheduler("asha"), ConfigTypeError, "it must be a scheduler"),  # type: ignore[arg-type]
    (lambda: ResourceChangingScheduler(EveryOther()), NotAvailableError, "over `EveryOther`"),
    (lambda: create_scheduler("ahsa"), ConfigError, "there is no scheduler 'ahsa'"),
]


@pytest.mark.parametrize(("make", "error", "text"), BAD, ids=[text for _, _, text in BAD])
def test_bad_arguments_are_one_clear_error_each(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_scheduler_is_made_by_its_name_with_what_it_takes() -> None:
    with pytest.warns(UserWarning, match="`ASHAScheduler` has no `grace`: left out"):
        scheduler = create_scheduler("AsyncHyperBand", max_t=7, grace=1)
    assert spec(scheduler)["asha"]["max_t"] == 7
    with pytest.warns(UserWarning, match="`FIFOScheduler` has no `metric`"):
        assert spec(create_scheduler("fifo", metric="loss")) == {"fifo": {}}
    assert isinstance(create_scheduler("pb2", hyperparam_bounds={"lr": [0, 1]}), PB2)


def trial(name: str, status: str = Trial.PENDING) -> Trial:
    made = Trial("t", trial_id=name)
    made.status = status
    return made


class Plain(FIFOScheduler):
    pass


class EveryOther(FIFOScheduler):
    """A user's scheduler: stops every other trial at its first result."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
        self.seen.append(trial.trial_id)
        return self.STOP if len(self.seen) % 2 else self.CONTINUE


def test_what_a_user_derives_from_fifo_is_asked_in_python() -> None:
    scheduler, one = EveryOther(), trial("a")
    assert not scheduler._is_native and Plain()._is_native
    assert [scheduler.on_trial_result(Controller([one]), one, {}) for _ in range(2)] == ["STOP", "CONTINUE"]
    assert spec(Plain()) == {"fifo": {}}


class Louder(ASHAScheduler):
    """A user's scheduler over one of ours: it hears of every result, and spares the trial `spared`."""

    heard: ClassVar[list[str]] = []

    def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
        decision = super().on_trial_result(controller, trial, result)
        self.heard.append(f"{trial.trial_id} {decision}")
        return self.CONTINUE if trial.trial_id == "spared" else decision


def test_a_scheduler_that_is_derived_from_one_of_ours_decides_as_it_does() -> None:
    scheduler = Louder(metric="loss", mode="min", max_t=9, reduction_factor=3)
    assert not scheduler._is_native and ASHAScheduler()._is_native
    trials = [trial(name) for name in ("first", "better", "worse", "spared")]
    controller = Controller(trials)
    decisions = []
    for one, loss in zip(trials, (2.0, 1.0, 3.0, 4.0), strict=True):
        scheduler.on_trial_add(controller, one)
        decisions.append(scheduler.on_trial_result(controller, one, {"training_iteration": 1, "loss": loss}))
    assert decisions == ["CONTINUE", "CONTINUE", "STOP", "CONTINUE"]
    assert Louder.heard == ["first CONTINUE", "better CONTINUE", "worse STOP", "spared STOP"]
    # What it knows goes with its pickle.
    scheduler = pickle.loads(pickle.dumps(scheduler))
    assert scheduler.on_trial_result(controller, trials[1], {"training_iteration": 9, "loss": 0.0}) == "STOP"
    assert "asynchronous" in scheduler.debug_string() or "ASHA" in scheduler.debug_string()


def test_what_hyperband_decides_about_those_that_wait_is_ordered_in_the_driver_too() -> None:
    class Own(HyperBandScheduler):
        def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
            return super().on_trial_result(controller, trial, result)

    scheduler = Own(metric="loss", mode="min", max_t=3, reduction_factor=3)
    trials = [trial(str(number)) for number in range(3)]
    controller = Controller(trials)
    for one in trials:
        scheduler.on_trial_add(controller, one)
    decisions = []
    for number, one in enumerate(trials):
        one.status = Trial.RUNNING
        decisions.append(scheduler.on_trial_result(controller, one, {"training_iteration": 1, "loss": number}))
        one.status = Trial.PAUSED
    assert decisions == ["PAUSE", "PAUSE", "STOP"]
    assert [(order["trial"], order["verdict"]) for order in controller.take_orders()] == [("1", "stop_early")]
    trials[1].status = trials[2].status = Trial.TERMINATED
    assert scheduler.choose_trial_to_run(controller) is trials[0]


def test_a_population_of_the_users_class_exploits_with_the_users_functions() -> None:
    class Own(PopulationBasedTraining):
        def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
            return super().on_trial_result(controller, trial, result)

    scheduler = Own(
        time_attr="training_iteration",
        metric="loss",
        mode="min",
        perturbation_interval=1,
        quantile_fraction=0.5,
        hyperparam_mutations={"lr": lambda: 7.0},
        resample_probability=1.0,
        custom_explore_fn=lambda config: {**config, "explored": True},
    )
    trials = [Trial("t", trial_id=name, config={"lr": 1.0}) for name in ("good", "bad")]
    controller = Controller(trials)
    for one in trials:
        scheduler.on_trial_add(controller, one)
    for one in trials:
        assert scheduler.choose_trial_to_run(controller) is one
        one.status = Trial.RUNNING
    decisions = [
        scheduler.on_trial_result(controller, one, {"training_iteration": 1, "loss": loss})
        for one, loss in zip(trials, (1.0, 2.0), strict=True)
    ]
    assert decisions == ["CONTINUE", "PAUSE"]
    (order,) = controller.take_orders("bad")
    assert (order["verdict"], order["from"]) == ("exploit", "good")
    assert order["config"] == {"lr": 7.0, "explored": True}


def test_a_function_of_the_users_gives_trials_other_resources() -> None:
    def more(controller: Controller, trial: Trial, result: dict[str, Any], scheduler: Any) -> Any:
        return PlacementGroupFactory([{"CPU": 2}]) if result["training_iteration"] > 1 else None

    scheduler = ResourceChangingScheduler(EveryOther(), more)
    assert not scheduler._is_native
    one = Trial("t", trial_id="a", resources={"CPU": 1.0})
    controller = Controller([one])
    results = [{"training_iteration": iteration} for iteration in (1, 2, 3, 4)]
    decisions = [scheduler.on_trial_result(controller, one, result) for result in results]
    assert decisions == ["STOP", "PAUSE", "STOP", "CONTINUE"]
    (order,) = controller.take_orders()
    assert (order["verdict"], order["resources"], one.resources) == ("resize", {"CPU": 2.0}, {"CPU": 2.0})


def test_trials_that_have_not_begun_are_chosen_before_paused_ones() -> None:
    trials = [trial("run", "RUNNING"), trial("paused", "PAUSED"), trial("new"), trial("newer")]
    controller = Controller(trials)
    assert FIFOScheduler().choose_trial_to_run(controller) is trials[2]
    trials[2].status = trials[3].status = Trial.ERROR
    assert FIFOScheduler().choose_trial_to_run(controller) is trials[1]
    trials[1].status = Trial.TERMINATED
    assert FIFOScheduler().choose_trial_to_run(controller) is None
    assert controller.get_live_trials() == [trials[0]]
    assert len(controller.get_trials()) == 4


def test_a_user_scheduler_takes_the_metric_of_the_experiment_unless_it_has_another() -> None:
    scheduler = TrialScheduler()
    assert scheduler.set_search_properties("loss", "min")
    assert (scheduler.metric, scheduler.mode) == ("loss", "min")
    assert scheduler.set_search_properties("loss", None)
    assert not scheduler.set_search_properties("accuracy", None)
    assert scheduler.metric == "loss"


def test_the_state_of_a_user_scheduler_is_saved_and_restored(tmp_path: Path) -> None:
    scheduler, one = EveryOther(), trial("a")
    scheduler.on_trial_result(Controller(), one, {})
    scheduler.save(str(tmp_path / "state"))
    other = EveryOther()
    other.restore(str(tmp_path / "state"))
    assert other.seen == ["a"]
    assert other.on_trial_result(Controller(), one, {}) == "CONTINUE"


def test_schedulers_pickle() -> None:
    scheduler = pbt(hyperparam_mutations={"lr": random.random, "size": [1, 2]})
    assert spec(pickle.loads(pickle.dumps(scheduler))) == spec(scheduler)
