"""Trainables as they run: how each form of one is carried through a trial, on a stand-in for its session."""

import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trial_session import Counting, Reused, Saving, Session, session_fixture  # noqa: F401

from carril._internal.pickling import dumps, loads
from carril.exceptions import ConfigError, ConfigTypeError
from carril.train import Checkpoint
from carril.tune.trainable import (
    TrialOptions,
    _class_form,
    check_trainable,
    run_trial,
    with_parameters,
)


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
