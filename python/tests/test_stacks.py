"""`carril stacks RUN`: where every rank of a live run is, asked from another terminal.

The command is run as a user does, beside a driver whose two workers stand still in places with known names.
"""

import json
import re
from collections.abc import Iterator

import pytest
from driver_scripts import Script, Scripts, scripts_fixture  # noqa: F401

from carril._internal.command import find_command

STILL = """
    import os, threading, time
    from carril import train

    def wait_for_the_lock():
        lock = threading.Lock()
        lock.acquire()
        print("in place", flush=True)
        lock.acquire()

    def sleep_for_long():
        print("in place", flush=True)
        time.sleep(1000)

    def loop():
        (wait_for_the_lock if train.get_context().get_world_rank() == 0 else sleep_for_long)()

    if __name__ == "__main__":
        trainer = train.DataParallelTrainer(
            loop, scaling_config=train.ScalingConfig(num_workers=2), run_config=train.RunConfig(name="still")
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            print("the run is over:", type(error).__name__, flush=True)
        # The head knows of the run until the driver leaves.
        while not os.path.exists("leave"):
            time.sleep(0.01)
"""
NOT_LIVE = (
    2,
    "error: the run `still` is not live\n"
    "hint: `carril explain still` tells how it went, `carril logs still` what its workers printed\n",
)


def carril(scripts: Scripts, *arguments: str) -> tuple[int, str]:
    """The exit code of the command, and what it printed."""
    command = scripts.start_command(find_command(), *arguments)
    return command.finish(), command.output


@pytest.fixture(name="still")
def still_fixture(scripts: Scripts) -> Iterator[Script]:
    """A driver whose ranks stand still. At the end its run is stopped and it leaves."""
    script = scripts.start(STILL)
    try:
        script.wait_for("in place\n", times=2)
        yield script
    finally:
        carril(scripts, "stop-run", "still")
        (scripts.directory / "leave").touch()


def test_the_functions_in_which_the_ranks_stand_still_are_named(scripts: Scripts, still: Script) -> None:
    code, output = carril(scripts, "stacks", "still")
    assert code == 0, output
    summary, rank_0, rank_1 = re.split(r"^rank \d \(\w+\)$", output, flags=re.MULTILINE)
    assert re.fullmatch(
        r"rank 0 is in `wait_for_the_lock` at script\.py:\d+, rank 1 is in `sleep_for_long` at script\.py:\d+",
        summary.strip(),
    )
    assert re.findall(r"^rank (\d)", output, re.MULTILINE) == ["0", "0", "1"], "the summary, and then each rank"
    for stack, function in ((rank_0, "wait_for_the_lock"), (rank_1, "sleep_for_long")):
        first, second = re.findall(r'^  File ".*script\.py", line \d+ in (\w+)$', stack, re.MULTILINE)
        assert (first, second) == (function, "loop"), "the most recent call first"


def test_the_run_goes_on_and_can_be_asked_again_by_its_id_and_its_directory(scripts: Scripts, still: Script) -> None:
    directory = scripts.storage / "still"
    run_id = json.loads((directory / "run.json").read_text())["run_id"]
    for run in (run_id, run_id[:8], str(directory), "still"):
        code, output = carril(scripts, "stacks", run)
        assert code == 0 and "rank 0 is in `wait_for_the_lock`" in output, output
    assert "the run is over" not in still.output
    assert json.loads((directory / "run.json").read_text())["status"] == "running"


def test_a_run_that_has_ended_has_no_stacks(scripts: Scripts, still: Script) -> None:
    assert carril(scripts, "stop-run", "still")[0] == 0
    still.wait_for("the run is over: AbortedError")
    assert carril(scripts, "stacks", "still") == NOT_LIVE, "while its head is there"
    (scripts.directory / "leave").touch()
    assert still.finish() == 0, still.output
    assert carril(scripts, "stacks", "still") == NOT_LIVE, "and after it"
