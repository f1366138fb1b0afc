"""The map of errors: every code of the native side has its class, and every error survives pickling whole."""

import pickle
from typing import Any

import pytest

from carril import _native, exceptions, train
from carril.exceptions import (
    CarrilError,
    ControllerError,
    InternalError,
    PreemptionError,
    TrainingFailedError,
    UserCodeError,
    WorkerDiedError,
    WorkerGroupError,
    from_failure,
    with_article,
)

CODES = _native.error_codes()


def _attributes(error: CarrilError) -> tuple[Any, ...]:
    return (type(error), str(error), error.message, error.code, error.origin, error.retryable, error.hints)


@pytest.mark.parametrize(("code", "origin", "retryable"), CODES, ids=[code for code, _, _ in CODES])
def test_every_code_has_its_class_and_comes_back_from_a_pickle(code: str, origin: str, retryable: bool) -> None:
    error = from_failure(code, origin, retryable, "the text", ["one way", "another way"])
    assert (error.code, error.origin, error.retryable, error.hints) == (
        code,
        origin,
        retryable,
        ["one way", "another way"],
    )
    assert str(error) == "the text\nhint: one way\nhint: another way"
    assert (type(error) is InternalError) == (code == "internal"), "only a bug of ours is an InternalError"
    assert _attributes(pickle.loads(pickle.dumps(error))) == _attributes(error)


def test_the_map_has_no_code_that_the_native_side_does_not_have() -> None:
    assert set(exceptions._CLASSES) == {code for code, _, _ in CODES}
    assert {origin for _, origin, _ in CODES} <= {"user", "infrastructure", "preemption", "carril"}


def test_an_unknown_code_is_a_bug_of_ours() -> None:
    assert type(from_failure("no-such-code", "carril", False, "text")) is InternalError


@pytest.mark.parametrize("name", [name for name in exceptions.__all__ if name != "from_failure"])
def test_every_class_can_be_raised_with_its_defaults_and_is_one_of_ours(name: str) -> None:
    cls = getattr(exceptions, name)
    arguments: dict[type, tuple[Any, ...]] = {
        WorkerGroupError: ("text", {0: ValueError("a")}),
        ControllerError: (ValueError("a"),),
        PreemptionError: (None,),
    }
    error = cls(*arguments.get(cls, ("text",)))
    assert isinstance(error, CarrilError) and error.code in {code for code, _, _ in CODES}
    assert error.__doc__ and _attributes(pickle.loads(pickle.dumps(error))) == _attributes(error)


@pytest.mark.parametrize(
    ("name", "also"),
    [
        ("ConfigError", ValueError),
        ("ConfigTypeError", TypeError),
        ("MetricsError", ValueError),
        ("NotAvailableError", NotImplementedError),
        ("NotFoundError", LookupError),
        ("NotFoundError", RuntimeError),
        ("TrainingFailedError", RuntimeError),
        ("WorkerGroupError", TrainingFailedError),
        ("ControllerError", TrainingFailedError),
        ("PreemptionError", TrainingFailedError),
        ("AbortedError", TrainingFailedError),
        ("CollectiveTimeoutError", exceptions.CollectiveError),
    ],
)
def test_errors_can_be_caught_as_what_python_has_for_them(name: str, also: type) -> None:
    assert issubclass(getattr(exceptions, name), also)


def test_the_errors_of_a_run_keep_what_they_hold_in_a_pickle() -> None:
    group = WorkerGroupError("text", {1: ValueError("of rank 1")}, code="worker-killed", retryable=True)
    copy = pickle.loads(pickle.dumps(group))
    assert copy.error_message == "text" and str(copy.worker_failures[1]) == "of rank 1" and copy.retryable
    controller = pickle.loads(pickle.dumps(ControllerError(KeyError("k"))))
    assert isinstance(controller.controller_failure, KeyError)
    assert str(controller) == "the run was ended by KeyError: 'k'"
    preemption = pickle.loads(pickle.dumps(PreemptionError(train.PreemptionInfo(5, {"n": [1]}), drain_timed_out=True)))
    assert preemption.preemption_info.preempted_ranks == [1] and preemption.drain_timed_out
    died = WorkerDiedError("text")
    died.exit_code, died.signal = 3, None
    assert pickle.loads(pickle.dumps(died)).exit_code == 3
    user = UserCodeError("text")
    user.traceback = "Traceback"
    assert pickle.loads(pickle.dumps(user)).traceback == "Traceback"


def test_a_controller_error_tells_the_hints_of_its_cause_once() -> None:
    cause = from_failure("checkpoint-conflict", "user", False, "two files", ["rename one"])
    error = ControllerError(cause)
    assert str(error) == "the run was ended by CheckpointError: two files\nhint: rename one"
    assert (error.code, error.origin, error.retryable) == ("checkpoint-conflict", "user", False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("int", "an int"),
        ("dict", "a dict"),
        ("Exception", "an Exception"),
        ("UserDict", "a UserDict"),
        ("_io.TextIOWrapper", "an _io.TextIOWrapper"),
        ("_thread.lock", "a _thread.lock"),
    ],
)
def test_the_names_of_types_have_the_article_that_one_would_say(name: str, told: str) -> None:
    assert with_article(name) == told
