"""Trainables as they are asked for: parameters, resources, names, and what is refused."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trial_session import Counting, Session, TrialStopped, session_fixture  # noqa: F401

from carril._internal.pickling import dumps, loads
from carril.exceptions import ConfigError, ConfigTypeError
from carril.train import Checkpoint, RunConfig, RunContext, ScalingConfig, UserCallback
from carril.tune._per_trial import callbacks_of
from carril.tune.callback import Callback
from carril.tune.logger import CSVLoggerCallback, LoggerCallback
from carril.tune.schedulers._trial import Trial
from carril.tune.trainable import (
    PlacementGroupFactory,
    Trainable,
    check_trainable,
    get_env_creator,
    get_trainable,
    register_env,
    register_trainable,
    resources_of,
    run_trial,
    with_parameters,
    with_resources,
)


def test_parameters_are_given_to_a_function_and_to_setup(session: Session) -> None:
    def train(config: dict[str, Any], data: list[int], factor: int = 1) -> int:
        return sum(data) * factor * int(config["lr"])

    bound = with_parameters(with_parameters(train, data=[1, 2]), factor=5)
    assert check_trainable(bound) == "train"
    run_trial(loads(dumps(bound)), {"lr": 2})
    assert session.reports == [{"_metric": 30}]

    class Model(Counting):
        def setup(self, config: dict[str, Any], data: list[int]) -> None:  # type: ignore[override]
            super().setup(config)
            self.until = len(data)

    given = with_parameters(Model, data=[1, 2])
    assert check_trainable(given) == "Model"
    assert given is not Model
    run_trial(given, {})
    assert len(session.reports) == 3


def test_resources_are_as_asked_and_stay_with_the_parameters() -> None:
    def train(config: dict[str, Any], data: Any = None) -> None: ...

    assert resources_of(train, {}) == {"CPU": 1.0}
    asked = with_resources(train, {"cpu": 2, "gpu": 0.5, "memory": 0, "custom_resources": {"disk": 1}})
    assert resources_of(asked, {}) == {"CPU": 2.0, "GPU": 0.5, "disk": 1.0}
    assert resources_of(with_parameters(asked, data=1), {}) == resources_of(asked, {})
    assert not hasattr(train, "_resources")
    assert check_trainable(asked) == "train"
    bundles = PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 1}])
    assert resources_of(with_resources(train, bundles), {}) == {"CPU": 3.0, "GPU": 1.0}
    by_config = with_resources(train, lambda config: {"cpu": config["workers"]})
    assert resources_of(loads(dumps(by_config)), {"workers": 3}) == {"CPU": 3.0}
    assert resources_of(with_resources(train, ScalingConfig(num_workers=2)), {}) == {"CPU": 2.0}


def test_a_class_says_what_it_reserves() -> None:
    class Wide(Counting):
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
            return PlacementGroupFactory([{"CPU": config["width"]}])

    assert resources_of(Counting, {}) == {"CPU": 1.0}
    assert resources_of(Wide, {"width": 4}) == {"CPU": 4.0}
    asked = with_resources(Wide, {"cpu": 3})
    assert check_trainable(asked) == "Wide"
    assert resources_of(asked, {"width": 4}) == {"CPU": 3.0}
    assert resources_of(Wide, {"width": 4}) == {"CPU": 4.0}


def test_bundles_are_compared_and_summed() -> None:
    bundles = PlacementGroupFactory([{}, {"cpu": 1}, {"CPU": 1}], strategy="SPREAD")
    assert bundles == PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}], strategy="SPREAD")
    assert bundles != PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}])
    assert len({bundles, PlacementGroupFactory(bundles.bundles, "SPREAD")}) == 1
    assert bundles.head_bundle_is_empty
    assert (bundles.head_cpus, bundles.required_resources, bundles.strategy) == (0.0, {"CPU": 2.0}, "SPREAD")


def test_names_stand_for_what_was_registered() -> None:
    def train(config: dict[str, Any]) -> None: ...

    register_trainable("my_train", train)
    assert get_trainable("my_train") is train
    assert check_trainable("my_train") == "my_train"
    with pytest.raises(ConfigError, match="no trainable is registered as 'my_tran'") as raised:
        check_trainable("my_tran")
    assert raised.value.hints == ["did you mean 'my_train'?"]
    register_env("my_env", dict)
    assert get_env_creator("my_env") is dict


def test_trainables_are_called_by_their_names() -> None:
    from carril.train import DataParallelTrainer

    def train(config: dict[str, Any], epochs: int = 3) -> None: ...

    class Caller:
        def __call__(self, config: dict[str, Any]) -> None: ...

    assert check_trainable(train) == "train"
    assert check_trainable(functools.partial(train, epochs=5)) == "train"
    assert check_trainable(lambda config: None) == "lambda"
    assert check_trainable(Caller()) == "Caller"
    assert check_trainable(Counting) == "Counting"
    assert check_trainable(DataParallelTrainer(lambda: None)) == "DataParallelTrainer"


def no_argument() -> None: ...


def two_arguments(config: dict[str, Any], data: Any) -> None: ...


async def asynchronous(config: dict[str, Any]) -> None: ...


class NoStep(Trainable):
    pass


BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: check_trainable(no_argument),
        ConfigError,
        r"takes no config(.|\n)*hint: write `def no_argument\(config\)",
    ),
    (lambda: check_trainable(two_arguments), ConfigError, r"with_parameters\(two_arguments, data=…\)"),
    (lambda: check_trainable(asynchronous), ConfigError, "is an async function"),
    (lambda: check_trainable(NoStep), ConfigError, "`NoStep` has no `step`"),
    (lambda: check_trainable(Counting()), ConfigTypeError, "give the class: `Counting`"),
    (lambda: check_trainable(dict), ConfigTypeError, "the class `dict` is no `Trainable`"),
    (lambda: check_trainable(3), ConfigTypeError, "an int cannot be tuned"),
    (lambda: check_trainable(None), ConfigError, "there is nothing to tune"),
    (lambda: register_trainable("", Counting), ConfigTypeError, "a name is a text"),
    (lambda: register_trainable("two", two_arguments), ConfigError, "`two_arguments` needs"),
    (lambda: register_env("env", 3), ConfigTypeError, "it must be a function"),  # type: ignore[arg-type]
    (lambda: with_parameters(two_arguments, dat=1), ConfigTypeError, "unexpected keyword argument 'dat'"),
    (lambda: with_parameters("train", data=1), ConfigTypeError, "it must be a function or"),  # type: ignore[type-var]
    (lambda: with_resources(no_argument, 3), ConfigTypeError, "is given an int"),
    (lambda: with_resources(no_argument, {"cpu": -1}), ConfigError, "an amount is a number, 0 or more"),
    (lambda: with_resources(no_argument, {"cpu": "2"}), ConfigTypeError, "'cpu': '2'"),
    (lambda: with_resources(no_argument, {"cpu": 1, "CPU": 2}), ConfigError, "`CPU` twice"),
    (lambda: PlacementGroupFactory([]), ConfigError, "has no bundles"),
    (lambda: PlacementGroupFactory([{}, {"CPU": 0}]), ConfigError, "only empty bundles"),
    (lambda: PlacementGroupFactory([{"CPU": 1}], strategy="NEAR"), ConfigError, "strategy='NEAR'"),
]


@pytest.mark.parametrize(("make", "error", "text"), BAD, ids=[text for _, _, text in BAD])
def test_bad_input_is_one_clear_error_each(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


# Callbacks.


def test_a_logger_is_told_in_fewer_words() -> None:
    told: list[Any] = []

    class Logger(LoggerCallback):
        def log_trial_start(self, trial: Trial) -> None:
            told.append(("start", trial.trial_id))

        def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
            told.append((iteration, result))

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            told.append(("end", failed))

    trial, logger = Trial(trial_id="a"), Logger()
    logger.on_trial_start(iteration=0, trials=[trial], trial=trial)
    logger.on_trial_result(iteration=1, trials=[trial], trial=trial, result={"loss": 1})
    logger.on_trial_complete(iteration=2, trials=[trial], trial=trial)
    logger.on_trial_error(iteration=3, trials=[trial], trial=trial)
    assert told == [("start", "a"), (1, {"loss": 1}), ("end", False), ("end", True)]
    assert isinstance(CSVLoggerCallback(), Callback)


def test_a_callback_of_training_has_each_trial_as_a_run() -> None:
    told: list[tuple[str, ...]] = []

    class Records(UserCallback):
        def on_start(self, run_context: RunContext) -> None:
            self.reports = 0
            told.append((run_context.name, "start", str(run_context.train_loop_config)))

        def after_report(self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            self.reports += metrics[0]["loss"]

        def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, BaseException]) -> None:
            told.append((run_context.name, "exception", str(worker_exceptions[0])))

        def on_end(self, run_context: RunContext, result: Any) -> None:
            told.append((run_context.name, "end", f"{self.reports} {type(result.error).__name__}"))

    (callback,) = callbacks_of(RunConfig(callbacks=[Records()]))
    trials = [Trial("t", config={"x": number}, trial_id=name) for number, name in enumerate("abc")]
    for trial in trials:
        callback.on_trial_start(0, trials, trial)
    for trial in (*trials, trials[0]):
        callback.on_trial_result(0, trials, trial, {"loss": 1, "config": trial.config})
    callback.on_trial_start(0, trials, trials[0])  # paused, and going on
    callback.on_trial_complete(0, trials, trials[0])
    trials[1].error = "on purpose"
    callback.on_trial_error(0, trials, trials[1])
    callback.on_experiment_end(trials)
    assert told == [
        *((f"t_{name}", "start", f"{{'x': {number}}}") for number, name in enumerate("abc")),
        ("t_a", "end", "2 NoneType"),
        ("t_b", "exception", "on purpose"),
        ("t_b", "end", "1 UserCodeError"),
        ("t_c", "end", "1 AbortedError"),
    ]


def test_reports_of_a_trainer_inside_a_trial_become_the_trials(session: Session, tmp_path: Path) -> None:
    from carril.tune.integration.ray_train import TuneReportCallback

    callback: Any = TuneReportCallback()
    callback.after_report(None, [{"loss": 1}, {"loss": 9}], None)
    session.verdicts = ["stop"]
    with pytest.raises(TrialStopped):
        callback.after_report(None, [{"loss": 2}], Checkpoint(tmp_path))
    assert session.reports == [{"loss": 1}, {"loss": 2, "checkpoint_path": str(tmp_path)}]


def test_outside_a_trial_there_is_nobody_to_report_to(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from carril.tune.integration.ray_train import TuneReportCallback

    session.info = None  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="outside a trial"):
        TuneReportCallback()


@pytest.mark.parametrize(
    ("module", "library", "line"),
    [
        ("xgboost", "xgboost", "pip install xgboost"),
        ("lightgbm", "lightgbm", "pip install lightgbm"),
        ("keras", "keras", "pip install keras"),
        ("pytorch_lightning", "lightning", "pip install lightning"),
    ],
)
def test_without_its_library_a_callback_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, module: str, library: str, line: str
) -> None:
    import importlib

    for name in (library, "tensorflow", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    integration = importlib.import_module(f"carril.tune.integration.{module}")
    if module != "lightgbm":  # the others are made when they are asked for, and kept
        monkeypatch.delitem(vars(integration), "TuneReportCallback", raising=False)
    with pytest.raises(ImportError, match=line):
        integration.TuneReportCallback()
