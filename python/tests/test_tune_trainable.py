"""Trainables: what is taken as one, and how each form of it runs as a trial.

A trial's session is a stand-in here that writes down what it is told and answers with the verdicts it was given: what
is tested is the trial's side. Checkpoints are copied as they come, as a real session does.
"""

import functools
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from carril._internal.pickling import dumps, loads
from carril.exceptions import ConfigError, ConfigTypeError
from carril.train import Checkpoint, ScalingConfig
from carril.tune.callback import Callback
from carril.tune.logger import CSVLoggerCallback, LoggerCallback
from carril.tune.schedulers._trial import Trial
from carril.tune.trainable import (
    PlacementGroupFactory,
    Trainable,
    TrialOptions,
    _class_form,
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


class TrialStopped(SystemExit):
    """As the real session raises it out of `tune.report`."""


class Session:
    """Stands for `carril.tune._session`: it keeps every report, and gives the verdicts one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.verdicts: list[str] = []
        self.reports: list[dict[str, Any]] = []
        # What became of each report's checkpoint: a number of the report, and whether it was silent.
        self.saved: list[tuple[int, bool]] = []
        self.latest: Checkpoint | None = None
        self.info = SimpleNamespace(
            id="3f2a1_00000",
            name="train_3f2a1_00000",
            directory=str(directory),
            experiment_name="exp",
            resources={"CPU": 2.0},
            iteration=0,
            time_total_s=0.0,
        )

    def report_trial(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None, *, silent: bool = False
    ) -> str:
        if not silent:
            self.reports.append(metrics)
        if checkpoint is not None:
            self.saved.append((len(self.reports), silent))
            target = self.directory / f"checkpoint_{len(self.saved):06}"
            shutil.copytree(checkpoint.path, target)
            self.latest = Checkpoint.stored(str(target))
        if silent:
            return "continue"
        return self.verdicts.pop(0) if self.verdicts else "continue"

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        if self.report_trial(metrics, checkpoint) in ("pause", "stop"):
            raise TrialStopped

    def values(self, name: str) -> list[Any]:
        return [metrics[name] for metrics in self.reports]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A trial to be in."""
    made = Session(tmp_path)
    module: Any = ModuleType("carril.tune._session")
    module.report_trial, module.TrialStopped = made.report_trial, TrialStopped
    module.latest_checkpoint, module.trial_info = lambda: made.latest, lambda: made.info
    monkeypatch.setitem(sys.modules, "carril.tune._session", module)
    monkeypatch.setattr("carril.tune._session", module, raising=False)
    monkeypatch.setattr("carril.tune.report", made.report, raising=False)
    yield made
    _class_form.release()


class Counting(Trainable):
    """Counts up to `config["until"]`, and writes down what is called."""

    calls: list[str]

    def setup(self, config: dict[str, Any]) -> None:
        self.calls = config.get("calls", [])
        self.calls.append(f"setup {self.trial_id}")
        self.count = 0
        self.until = config.get("until", 3)

    def step(self) -> dict[str, Any]:
        self.count += 1
        if self.count == self.config.get("fails"):
            raise ValueError("of the user")
        return {"count": self.count, "done": self.count >= self.until}

    def cleanup(self) -> None:
        self.calls.append("cleanup")


class Saving(Counting):
    """Keeps its count in a dict."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.calls.append(f"load at {self.iteration}")
        self.count = checkpoint["count"]


class Reused(Saving):
    """Can be had by the next trial."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.calls.append(f"reset {self.trial_id}")
        self.count, self.until = 0, new_config.get("until", 3)
        return not new_config.get("refuses")


# Functions.


def test_a_function_reports_by_itself_and_is_left_where_it_is_to_stop(session: Session) -> None:
    left = []

    def train(config: dict[str, Any]) -> None:
        from carril.tune import report  # type: ignore[attr-defined,unused-ignore]

        try:
            for step in range(config["steps"]):
                report({"step": step})
        finally:
            left.append(True)

    session.verdicts = ["continue", "save", "stop"]
    run_trial(train, {"steps": 9})
    assert session.reports == [{"step": 0}, {"step": 1}, {"step": 2}]
    assert left == [True]


def test_an_exit_of_the_users_own_is_not_taken_for_a_stop(session: Session) -> None:
    with pytest.raises(SystemExit) as leaving:
        run_trial(lambda config: sys.exit(3), {})
    assert leaving.value.code == 3


@pytest.mark.parametrize(
    ("returned", "reported"), [({"loss": 1}, [{"loss": 1}]), (0.5, [{"_metric": 0.5}]), (None, [])]
)
def test_what_a_function_returns_is_its_last_result(session: Session, returned: Any, reported: list[Any]) -> None:
    run_trial(lambda config: returned, {})
    assert session.reports == reported


def test_a_returned_object_that_is_no_result_costs_no_trial(session: Session) -> None:
    with pytest.warns(UserWarning, match="`lambda` returned a list, which is no result"):
        run_trial(lambda config: [1], {})
    assert session.reports == []


def test_a_generator_reports_what_it_yields_until_it_is_to_stop(session: Session) -> None:
    left = []

    def train(config: dict[str, Any]) -> Iterator[Any]:
        try:
            yield {"loss": 1}
            yield 2
            yield 3
        finally:
            left.append(True)

    session.verdicts = ["continue", "pause"]
    run_trial(train, {})
    assert session.reports == [{"loss": 1}, {"_metric": 2}]
    assert left == [True]


def test_a_generator_must_yield_results(session: Session) -> None:
    def train(config: dict[str, Any]) -> Iterator[str]:
        yield "loss"

    with pytest.raises(ConfigTypeError, match="`train` yielded a str: it must yield a dict or a number"):
        run_trial(train, {})


def test_the_older_reporter_takes_metrics_by_name(session: Session) -> None:
    def train(config: dict[str, Any], reporter: Callable[..., None]) -> None:
        for step in range(5):
            reporter(step=step, lr=config["lr"])

    session.verdicts = ["continue", "stop"]
    assert check_trainable(train) == "train"
    run_trial(train, {"lr": 0.1})
    assert session.reports == [{"step": 0, "lr": 0.1}, {"step": 1, "lr": 0.1}]


def test_the_older_checkpoint_dir_is_the_newest_checkpoint(session: Session, tmp_path: Path) -> None:
    seen = []

    def train(config: dict[str, Any], checkpoint_dir: str | None = None, data: Any = None) -> None:
        seen.append((checkpoint_dir, data))

    assert check_trainable(train) == "train"
    run_trial(train, {})
    session.latest = Checkpoint(tmp_path)
    run_trial(with_parameters(train, data=[1]), {})
    assert seen == [(None, None), (str(tmp_path), [1])]


# Classes.


def test_a_class_is_stepped_until_it_is_done(session: Session) -> None:
    calls: list[str] = []
    run_trial(Counting, {"calls": calls})
    assert calls == ["setup 3f2a1_00000", "cleanup"]
    assert session.values("count") == session.values("training_iteration") == [1, 2, 3]
    assert session.values("done") == [False, False, True]
    assert session.values("time_total_s") == sorted(session.values("time_total_s"))
    assert session.saved == [], "it cannot save"


def test_a_class_that_saves_does_so_at_its_end_and_as_often_as_asked(session: Session) -> None:
    run_trial(Saving, {"until": 5})
    assert session.saved == [(5, False)]
    session.latest = None
    session.saved.clear()
    session.reports.clear()
    shutil.rmtree(session.directory / "checkpoint_000001")
    run_trial(Saving, {"until": 5}, TrialOptions(checkpoint_frequency=2, checkpoint_at_end=False))
    assert session.saved == [(2, False), (4, False)]


@pytest.mark.parametrize(
    ("verdict", "at_end", "saved"),
    [
        ("stop", None, [(2, True)]),
        ("stop", False, []),
        ("pause", False, [(2, True)]),
        ("save", False, [(2, True)]),
        ("continue", False, []),
    ],
)
def test_a_verdict_saves_what_no_report_has_saved(
    session: Session, verdict: str, at_end: bool | None, saved: list[tuple[int, bool]]
) -> None:
    session.verdicts = ["continue", verdict, "stop"]
    calls: list[str] = []
    run_trial(Saving, {"calls": calls, "until": 9}, TrialOptions(checkpoint_at_end=at_end))
    assert len(session.reports) == (2 if verdict in ("stop", "pause") else 3)
    assert session.saved == saved
    assert calls[-1] == "cleanup"


def test_an_iteration_is_saved_once(session: Session) -> None:
    session.verdicts = ["save", "stop"]
    run_trial(Saving, {}, TrialOptions(checkpoint_frequency=1))
    assert session.saved == [(1, False), (2, False)]


def test_a_trial_goes_on_from_its_checkpoint_with_its_counts(session: Session) -> None:
    session.verdicts = ["continue", "pause"]
    run_trial(Saving, {"until": 4})
    before = session.reports[-1]["time_total_s"]
    calls: list[str] = []
    run_trial(Saving, {"until": 4, "calls": calls})
    assert calls[1] == "load at 2"
    assert session.values("count") == session.values("training_iteration") == [1, 2, 3, 4]
    assert session.values("iterations_since_restore") == [1, 2, 1, 2]
    assert session.reports[2]["time_total_s"] > before


def test_a_checkpoint_without_counts_goes_on_from_what_the_trial_knows(session: Session, tmp_path: Path) -> None:
    session.info.iteration, session.info.time_total_s = 7, 70.0
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "_dict_checkpoint.pkl").write_bytes(pickle.dumps({"count": 2}))
    session.latest = Checkpoint(foreign)
    run_trial(Saving, {"until": 3})
    assert session.values("training_iteration") == [8]
    assert session.reports[0]["time_total_s"] >= 70


class Files(Counting):
    """Keeps its count in a file, and tells where in the way that `config` says."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        path = os.path.join(checkpoint_dir, "count.txt")
        Path(path).write_text(str(self.count))
        return {"file": path, "directory": checkpoint_dir, "nothing": None, "outside": "/tmp", "number": 3}[
            self.config["returns"]
        ]

    def load_checkpoint(self, checkpoint: Any) -> None:
        path = Path(checkpoint)
        assert path.is_file() == (self.config["returns"] == "file")
        self.count = int((path if path.is_file() else path / "count.txt").read_text())


@pytest.mark.parametrize("returns", ["file", "directory", "nothing"])
def test_what_was_saved_is_what_is_loaded(session: Session, returns: str) -> None:
    session.verdicts = ["pause"]
    run_trial(Files, {"returns": returns})
    run_trial(Files, {"returns": returns})
    assert session.values("count") == [1, 2, 3]


@pytest.mark.parametrize(
    ("returns", "text"), [("outside", "`/tmp`, which is not in the directory"), ("number", "returned an int")]
)
def test_a_checkpoint_elsewhere_is_an_error_of_the_trial(session: Session, returns: str, text: str) -> None:
    calls: list[str] = []
    with pytest.raises(ConfigError, match=text):
        run_trial(Files, {"returns": returns, "calls": calls}, TrialOptions(checkpoint_frequency=1))
    assert calls[-1] == "cleanup"


def test_a_failing_trial_is_cleaned_up_and_its_own_error_is_shown(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    class Worse(Counting):
        def cleanup(self) -> None:
            super().cleanup()
            raise OSError("of the cleanup")

    calls: list[str] = []
    with pytest.raises(ValueError, match="of the user"):
        run_trial(Worse, {"fails": 2, "calls": calls})
    assert calls == ["setup 3f2a1_00000", "cleanup"]
    assert "OSError: of the cleanup" in capfd.readouterr().err


def test_a_class_that_cannot_save_is_told_so_before_it_begins(session: Session) -> None:
    calls: list[str] = []
    with pytest.raises(ConfigError, match=r"`CheckpointConfig\(checkpoint_frequency=…\)` asks .* `Counting` has no"):
        run_trial(Counting, {"calls": calls}, TrialOptions(checkpoint_frequency=2))
    with pytest.raises(ConfigError, match="checkpoint_at_end"):
        run_trial(Counting, {"calls": calls}, TrialOptions(checkpoint_at_end=True))
    assert calls == []
    session.verdicts = ["save", "pause"]
    with pytest.raises(ConfigError, match="`Counting` has no `save_checkpoint`, and the scheduler pauses"):
        run_trial(Counting, {"calls": calls})


def test_a_step_must_return_a_dict(session: Session) -> None:
    class Silent(Counting):
        def step(self) -> Any:
            return None

    with pytest.raises(ConfigTypeError, match=r"`Silent.step` returned a NoneType: it must return a dict"):
        run_trial(Silent, {})


def test_steps_and_episodes_are_summed_and_go_on(session: Session) -> None:
    class Episodes(Saving):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "timesteps_this_iter": 10, "episodes_this_iter": 2}

    session.verdicts = ["continue", "pause"]
    run_trial(Episodes, {"until": 3})
    run_trial(Episodes, {"until": 3})
    assert session.values("timesteps_total") == [10, 20, 30]
    assert session.values("episodes_total") == [2, 4, 6]


def test_what_the_user_reports_under_the_name_of_a_count_stands(session: Session) -> None:
    class Own(Counting):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "training_iteration": self.count * 10}

    run_trial(Own, {"until": 2})
    assert session.values("training_iteration") == [10, 20]


def test_a_trainable_knows_its_trial(session: Session) -> None:
    seen = []

    class Looking(Counting):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config)
            seen.append((self.trial_id, self.trial_name, self.logdir, self.trial_resources))

    run_trial(Looking, {"until": 1})
    assert seen == [("3f2a1_00000", "train_3f2a1_00000", str(session.directory), {"CPU": 2.0})]


# Worker reuse.

REUSE = TrialOptions(reuse=True)


def test_an_object_is_taken_over_by_the_next_trial(session: Session) -> None:
    calls: list[str] = []
    run_trial(Reused, {"calls": calls, "until": 2}, REUSE)
    session.info.id, session.latest = "second", None
    run_trial(Reused, {"until": 1}, REUSE)
    assert calls == ["setup 3f2a1_00000", "reset second"]
    assert session.values("training_iteration") == [1, 2, 1]
    _class_form.release()
    assert calls[-1] == "cleanup"
    assert calls.count("cleanup") == 1


def test_a_paused_trial_goes_on_in_an_object_that_another_had(session: Session) -> None:
    session.verdicts = ["continue", "pause"]
    run_trial(Reused, {"until": 4}, REUSE)
    kept, session.latest = session.latest, None
    run_trial(Reused, {"until": 1}, REUSE)
    session.latest = kept
    run_trial(Reused, {"until": 4}, REUSE)
    assert session.values("training_iteration") == [1, 2, 1, 3, 4]


def test_an_object_that_refuses_its_next_trial_is_cleaned_up(session: Session) -> None:
    calls: list[str] = []
    run_trial(Reused, {"calls": calls, "until": 1}, REUSE)
    session.info.id, session.latest = "second", None
    run_trial(Reused, {"calls": calls, "until": 1, "refuses": True}, REUSE)
    assert calls == ["setup 3f2a1_00000", "reset second", "cleanup", "setup second"]


@pytest.mark.parametrize("following", [Saving, Counting, lambda config: None])
def test_another_trainable_gets_no_object_of_this_one(session: Session, following: Any) -> None:
    calls: list[str] = []
    run_trial(Reused, {"calls": calls, "until": 1}, REUSE)
    session.latest = None
    run_trial(following, {"until": 1}, REUSE)
    assert calls == ["setup 3f2a1_00000", "cleanup"]


def test_a_class_without_reset_config_is_made_anew(session: Session) -> None:
    calls: list[str] = []
    for _ in range(2):
        session.latest = None
        run_trial(Saving, {"calls": calls, "until": 1}, REUSE)
    assert calls == ["setup 3f2a1_00000", "cleanup", "setup 3f2a1_00000"]


def test_the_object_of_a_failed_trial_is_not_kept(session: Session) -> None:
    calls: list[str] = []
    with pytest.raises(ValueError, match="of the user"):
        run_trial(Reused, {"calls": calls, "fails": 1}, REUSE)
    run_trial(Reused, {"calls": calls, "until": 1}, REUSE)
    assert calls == ["setup 3f2a1_00000", "cleanup", "setup 3f2a1_00000"]


def test_a_class_made_by_with_parameters_is_the_same_class_after_its_way_to_the_worker(session: Session) -> None:
    class Local(Reused):
        def setup(self, config: dict[str, Any], data: list[int] | None = None) -> None:  # type: ignore[override]
            super().setup(config)
            self.calls.append(f"data {data}")

    packed = dumps(with_parameters(Local, data=[1]))
    calls: list[str] = []
    for name in ("first", "second"):
        session.info.id, session.latest = name, None
        run_trial(loads(packed), {"calls": calls, "until": 1}, REUSE)
    assert calls == ["setup first", "data [1]", "reset second"]


# By hand.


def test_a_class_is_trained_saved_and_restored_by_hand(tmp_path: Path) -> None:
    trainable = Saving({"until": 9})
    assert [trainable.train()["count"] for _ in range(2)] == [1, 2]
    result = trainable.save(tmp_path / "kept")
    assert result.checkpoint.path == os.fspath(result) == str(tmp_path / "kept")
    assert result.metrics["count"] == 2
    for form in (result, result.checkpoint, str(tmp_path / "kept")):
        other = Saving()
        other.restore(form)
        assert (other.count, other.iteration, other.training_iteration) == (2, 2, 2)
    assert trainable.get_state()["iteration"] == 2
    assert trainable.get_config() == {"until": 9}
    assert not trainable.reset({"until": 1})
    trainable.stop()
    assert trainable.calls == ["setup default", "cleanup"]


def test_outside_a_trial_a_trainable_has_no_resources() -> None:
    trainable = Saving()
    assert (trainable.trial_id, trainable.trial_name, trainable.trial_resources) == ("default", "default", None)
    assert trainable.logdir == os.getcwd()


def test_a_model_is_exported_by_the_class() -> None:
    class Exporting(Saving):
        def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
            return {one: f"{export_dir}/model.{one}" for one in export_formats}

    assert Exporting().export_model("onnx", "/there") == {"onnx": "/there/model.onnx"}
    assert Saving().export_model(["onnx"]) == {}


# What is given beside the config.


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

    trial, logger = Trial("a"), Logger()
    logger.on_trial_start(iteration=0, trials=[trial], trial=trial)
    logger.on_trial_result(iteration=1, trials=[trial], trial=trial, result={"loss": 1})
    logger.on_trial_complete(iteration=2, trials=[trial], trial=trial)
    logger.on_trial_error(iteration=3, trials=[trial], trial=trial)
    assert told == [("start", "a"), (1, {"loss": 1}), ("end", False), ("end", True)]
    assert isinstance(CSVLoggerCallback(), Callback)


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
