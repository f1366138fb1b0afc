"""How a failed run is reported: the headline with rank, type, text and the user's own line, and the exceptions themselves."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest
from runs import NO_RESTART, fit

from carril.exceptions import ConfigError, UserCodeError, WorkerDiedError
from carril.train import TrainingFailedError, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")


def failed(function: Callable[..., Any], storage: Path, workers: int = 1, **run: Any) -> WorkerGroupError:
    """The error of a run that must fail, at its first failure."""
    with pytest.raises(TrainingFailedError) as caught:
        fit(function, storage, workers=workers, failure_config=NO_RESTART, **run)
    assert isinstance(caught.value, WorkerGroupError)
    return caught.value


def line_of(text: str) -> int:
    """The number of the line of this file that holds `text` and nothing that only quotes it."""
    found = [i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text]
    assert len(found) == 1, (text, found)
    return found[0]


def test_the_headline_has_rank_type_text_file_and_line_of_the_user_s_own_code(storage: Path) -> None:
    def function() -> None:
        import json

        from carril import train

        if train.get_context().get_world_rank() == 1:
            json.loads("{broken")  # the user's own line, above the library's
        train.collective.barrier()

    error = failed(function, storage, workers=3, name="headline")
    number = line_of("json.loads(\"{broken\")  # the user's own line, above the library's")
    headline, place = str(error).splitlines()[:2]
    assert headline.startswith("rank 1 failed: json.decoder.JSONDecodeError: Expecting property name")
    assert place.strip().endswith(f"test_failures.py:{number}")
    assert "Traceback (most recent call last)" in str(error) and "carril/_internal" not in str(error)
    first = (storage / "headline" / "error.txt").read_text().splitlines()[0]
    assert first.startswith("rank 1 failed: json.decoder.JSONDecodeError: ") and first.endswith(f":{number}")
    record = json.loads((storage / "headline" / "error.json").read_text())
    assert record["headline"] == first and record["status"] == "failed"
    assert record["failures"][0]["rank"] == 1 and record["failures"][0]["location"].endswith(f":{number}")


def test_the_exceptions_are_the_user_s_own_objects(storage: Path) -> None:
    class Own(ValueError):
        def __init__(self, text: str, details: dict[str, int]) -> None:
            super().__init__(text, details)
            self.details = details

    def function() -> None:
        raise Own("of my own", {"step": 3})

    error = failed(function, storage, workers=2)
    first = next(iter(error.worker_failures.values()))
    assert type(first) is Own and first.details == {"step": 3} and error.__cause__ is first
    assert set(error.worker_failures) <= {0, 1}
    assert (error.code, error.origin, error.retryable) == ("user-exception", "user", True)
    # The class is local to this test, which only cloudpickle can send.
    copy = pickle.loads(cloudpickle.dumps(error))
    assert str(copy) == str(error) and copy.worker_failures.keys() == error.worker_failures.keys()
    assert str(next(iter(copy.worker_failures.values()))) == str(first)


def test_an_exception_class_of_the_script_comes_back_as_that_class(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        """
import carril
from carril import train

class Own(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code
    def __reduce__(self):
        return Own, (self.code,)

def function():
    raise Own(17)

if __name__ == "__main__":
    try:
        train.DataParallelTrainer(function, run_config={"storage_path": "runs"}).fit()
    except train.WorkerGroupError as error:
        own = error.worker_failures[0]
        print(type(own) is Own, own.code, str(error).splitlines()[:2])
"""
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "True 17 ['rank 0 failed: Own: code 17', '  at script.py:13']", done


def test_an_exception_that_cannot_be_pickled_is_stood_for_with_its_text(storage: Path) -> None:
    def function() -> None:
        import threading

        class Locked(Exception):
            def __init__(self) -> None:
                super().__init__("holds a lock")
                self.lock = threading.Lock()

        raise Locked

    error = failed(function, storage)
    stand_in = error.worker_failures[0]
    assert isinstance(stand_in, UserCodeError) and "Locked: holds a lock" in str(stand_in)
    assert "raise Locked" in stand_in.traceback
    assert re.match(r"rank 0 failed: .*Locked: holds a lock\n  at .*test_failures\.py:\d+", str(error))


def test_an_exception_that_pickles_and_cannot_be_unpickled_is_stood_for_too(storage: Path) -> None:
    def function() -> None:
        class Needs(Exception):
            def __init__(self, one: int, two: int) -> None:
                super().__init__("one text of two numbers")

        raise Needs(1, 2)

    error = failed(function, storage)
    assert isinstance(error.worker_failures[0], UserCodeError)
    assert "Needs: one text of two numbers" in str(error)


def test_an_exception_whose_text_cannot_be_made_is_told_all_the_same(storage: Path) -> None:
    def function() -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        raise Mute

    assert "Mute: (its text cannot be made: RuntimeError)" in str(failed(function, storage))


def test_a_text_that_no_encoding_has_is_told_escaped(storage: Path) -> None:
    """The name of a file that is no UTF-8, as `os.listdir` gives it."""

    def function() -> None:
        import os

        raise ValueError(f"cannot parse {os.fsdecode(bytes([47, 99, 233]))}")

    error = failed(function, storage)
    assert str(error).startswith("rank 0 failed: ValueError: cannot parse /c\\udce9\n  at ")


def test_a_text_of_megabytes_is_cut_and_the_exception_keeps_it(storage: Path) -> None:
    def function() -> None:
        raise ValueError("x" * 2_000_000)

    error = failed(function, storage)
    assert "x… (1,996,000 more characters)" in str(error) and len(str(error)) < 20_000
    assert len(str(error.worker_failures[0])) == 2_000_000


@pytest.mark.parametrize(
    ("ending", "code"), [("raise RuntimeError('in the child')", 1), ("sys.exit(4)", 4), ("sys.exit()", 0), ("pass", 0)]
)
def test_a_child_that_the_function_has_forked_ends_as_any_child_does(storage: Path, ending: str, code: int) -> None:
    def function(config: dict[str, Any]) -> int:
        import os
        import sys

        child = os.fork()
        if child == 0:
            exec(config["ending"], {"sys": sys})
            return -1
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert fit(function, storage, workers=1, config={"ending": ending}).return_value == code


def test_chained_exceptions_are_both_in_the_traceback(storage: Path) -> None:
    def function() -> None:
        try:
            {}["missing"]  # type: ignore[index]
        except KeyError as error:
            raise ValueError("outer") from error

    text = str(failed(function, storage))
    assert text.startswith("rank 0 failed: ValueError: outer\n")
    assert "KeyError: 'missing'" in text and "direct cause" in text


def test_equal_failures_of_several_ranks_are_told_together(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.collective.barrier()
        rank = train.get_context().get_world_rank()
        raise ValueError(f"bad batch on rank {rank}")

    error = failed(function, storage, workers=4)
    first = next(iter(error.worker_failures))
    text = str(error)
    assert text.startswith(f"rank {first} failed: ValueError: bad batch on rank {first}\n")
    assert text.count("Traceback") == 1
    others = len(error.worker_failures) - 1
    assert not others or re.search(r"^ranks? [0-9, ]+ failed in the same way$", text, re.MULTILINE), text


@pytest.mark.parametrize(
    ("ending", "text", "code", "origin"),
    [
        ("os._exit(3)", "the worker process left with exit code 3", "worker-exited", "user"),
        ("os._exit(0)", "the worker process left with exit code 0", "worker-exited", "user"),
        ("os.kill(os.getpid(), 9)", "the worker process was ended by SIGKILL", "worker-killed", "infrastructure"),
        ("ctypes.string_at(0)", "the worker process was ended by SIGSEGV", "worker-exited", "user"),
        ("os.abort()", "the worker process was ended by SIGABRT", "worker-exited", "user"),
        ("os.kill(os.getpid(), 40)", "the worker process was ended by signal 40", "worker-killed", "infrastructure"),
    ],
)
def test_a_process_that_just_ends_is_told_with_how_and_its_last_output(
    storage: Path, ending: str, text: str, code: str, origin: str
) -> None:
    def function(config: dict[str, Any]) -> None:
        import ctypes
        import os

        from carril import train

        print("the last words", flush=True)
        train.report({"step": 0})
        if train.get_context().get_world_rank() == 1:
            exec(config["ending"], {"os": os, "ctypes": ctypes})
        train.collective.barrier()

    error = failed(function, storage, workers=2, config={"ending": ending})
    assert str(error).startswith(f"rank 1 failed: {text}\n")
    assert "its last output:" in str(error) and "the last words" in str(error)
    died = error.worker_failures[1]
    assert list(error.worker_failures) == [1] and isinstance(died, WorkerDiedError) and text in str(died)
    assert (error.code, error.origin) == (code, origin) == (died.code, died.origin)


def test_the_error_of_a_process_that_just_ended_has_its_exit_code_or_signal(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        import os

        exec(config["ending"], {"os": os})

    how = []
    for ending in ("os._exit(3)", "os.kill(os.getpid(), 9)"):
        died = failed(function, storage, config={"ending": ending}).worker_failures[0]
        assert isinstance(died, WorkerDiedError)
        how.append((died.exit_code, died.signal))
    assert how == [(3, None), (None, 9)]


def test_a_sigterm_from_outside_reaches_the_function_which_can_clean_up(storage: Path) -> None:
    def function() -> None:
        import os
        import signal

        from carril import train

        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            train.report({"cleaned": True})

    error = failed(function, storage, name="told")
    assert str(error).startswith("rank 0 failed: the worker process was ended by SIGTERM")
    assert error.code == "worker-killed"
    assert json.loads((storage / "told" / "result.json").read_text())["cleaned"] is True


def test_a_crash_in_native_code_shows_the_python_line(storage: Path) -> None:
    def function() -> None:
        import ctypes

        ctypes.string_at(0)  # crashes here

    text = str(failed(function, storage))
    assert f'test_failures.py", line {line_of("ctypes.string_at(0)  # crashes here")} in function' in text


@pytest.mark.parametrize(
    ("leaving", "headline"),
    [("sys.exit(3)", "rank 0 failed: SystemExit: 3"), ("sys.exit('gave up')", "rank 0 failed: SystemExit: gave up")],
)
def test_sys_exit_with_something_to_say_is_a_failure(storage: Path, leaving: str, headline: str) -> None:
    def function(config: dict[str, Any]) -> None:
        import sys

        exec(config["leaving"], {"sys": sys})

    error = failed(function, storage, config={"leaving": leaving})
    assert str(error).splitlines()[0] == headline and isinstance(error.worker_failures[0], SystemExit)


@pytest.mark.parametrize("leaving", ["sys.exit()", "sys.exit(0)", "sys.exit(None)"])
def test_sys_exit_without_is_a_return(storage: Path, leaving: str) -> None:
    def function(config: dict[str, Any]) -> None:
        import sys

        from carril import train

        train.report({"step": 1})
        exec(config["leaving"], {"sys": sys})

    result = fit(function, storage, workers=2, config={"leaving": leaving})
    assert result.metrics is not None and result.metrics["step"] == 1 and result.return_value is None


def test_what_was_reported_and_kept_before_a_failure_stays(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        train.report({"step": 0}, checkpoint=train.Checkpoint.from_dict({"a": 1}) if rank == 0 else None)
        train.get_checkpoint()
        train.collective.barrier()
        if rank == 0:
            raise ValueError("after it")
        train.collective.barrier()

    failed(function, storage, workers=2, name="kept")
    assert (storage / "kept" / "checkpoint_000000" / ".manifest.json").exists()
    assert json.loads((storage / "kept" / "result.json").read_text())["step"] == 0
    assert json.loads((storage / "kept" / "run.json").read_text())["status"] == "failed"


def test_an_unpicklable_variable_of_the_function_is_named(storage: Path) -> None:
    import threading

    lock = threading.Lock()

    def inner() -> None:
        with lock:
            pass

    def function() -> None:
        inner()

    with pytest.raises(ConfigError) as caught:
        fit(function, storage, workers=1)
    text = str(caught.value)
    assert "uses the variable `lock`, a _thread.lock, which cannot be sent to the workers: TypeError: cannot" in text
    assert "hint: make it inside " in text and list(storage.iterdir()) == []


def test_an_unpicklable_entry_of_the_config_is_named(storage: Path) -> None:
    import threading

    def function(config: dict[str, Any]) -> None: ...

    with pytest.raises(ConfigError) as caught:
        fit(function, storage, workers=1, config={"lr": 1, "lock": threading.Lock()})
    text = str(caught.value)
    assert text.startswith("`train_loop_config['lock']`, a _thread.lock, cannot be sent to the workers: TypeError")
    assert "\nhint: send what it is made from, and make it inside the function" in text
    assert list(storage.iterdir()) == []


def test_a_backend_that_cannot_be_set_up_is_a_failure_of_its_ranks(storage: Path) -> None:
    from carril.train import BackendConfig, DataParallelTrainer

    class Broken(BackendConfig):
        def setup(self, session: Any) -> None:
            raise OSError("no framework here")

    trainer = DataParallelTrainer(
        lambda: None, backend_config=Broken(), run_config={"storage_path": storage}, scaling_config={"num_workers": 2}
    )
    with pytest.raises(WorkerGroupError, match=r"rank \d failed: OSError: no framework here"):
        trainer.fit()
