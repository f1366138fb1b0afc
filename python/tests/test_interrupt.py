"""Ctrl-C: it reaches the driver alone, ends the run within seconds, and leaves nothing.

A terminal sends SIGINT to the process group of the driver. The tests do the same, to a driver that leads a group of
its own.
"""

import json
import re
import signal
import time
import zlib
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401

# Seconds from Ctrl-C to the driver's end, which is its interpreter's as well: the machine may be busy.
AT_MOST = 15.0
# Seconds from Ctrl-C, as the head hears of it, to the end of the run: the bound that is promised.
PROMISED = 2.0

WAITING = """
    import os, signal, sys, time
    import carril
    from carril import train

    def loop(config):
        seen = lambda number, frame: print("worker saw", signal.Signals(number).name, flush=True)
        signal.signal(signal.SIGINT, seen)
        if config["stubborn"]:
            signal.signal(signal.SIGTERM, seen)
        else:
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("worker cleaned up"))
        train.report({"step": 1})
        print("worker up", flush=True)
        while True:
            time.sleep(0.05)

    if __name__ == "__main__":
        trainer = train.DataParallelTrainer(
            loop,
            train_loop_config={"stubborn": sys.argv[1] == "stubborn"},
            scaling_config=train.ScalingConfig(num_workers=2),
        )
        try:
            trainer.fit()
        except KeyboardInterrupt:
            print("fit ended with KeyboardInterrupt", flush=True)
            if sys.argv[-1] == "again":
                result = train.DataParallelTrainer(lambda: 5).fit()
                print("then returned", result.return_value)
"""


def test_ctrl_c_ends_fit_within_seconds_and_workers_do_not_see_it(scripts: Scripts) -> None:
    script = scripts.start(WAITING, "polite")
    script.wait_for("worker up", times=2)
    began = time.monotonic()
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    assert time.monotonic() - began < AT_MOST
    assert "fit ended with KeyboardInterrupt" in script.output
    assert "worker saw SIGINT" not in script.output
    script.is_alone()
    assert scripts.heads_directories() == []


def test_ctrl_c_ends_workers_that_ignore_the_order_to_stop(scripts: Scripts) -> None:
    script = scripts.start(WAITING, "stubborn")
    script.wait_for("worker up", times=2)
    began = time.monotonic()
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    assert time.monotonic() - began < AT_MOST
    assert "worker saw SIGINT" not in script.output
    assert "fit ended with KeyboardInterrupt" in script.output


DEAF = """
    import ctypes, glob, os, signal, subprocess, sys, time
    from carril import train

    def loop(config):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        open(f"up-{os.getpid()}", "w").close()
        train.report({"step": 1})
        if config["where"] == "with a child":
            # It inherits what is ignored.
            child = "import os, time; open(f'up-{os.getpid()}', 'w').close(); print('ready', flush=True); time.sleep(1000)"
            subprocess.Popen([sys.executable, "-c", child]).wait()
        print("ready", flush=True)
        if config["where"] == "in C":
            # With the GIL held: no line of Python is run until it returns.
            ctypes.PyDLL(None).sleep(1000)
        while True:
            pass

    if __name__ == "__main__":
        trainer = train.DataParallelTrainer(
            loop,
            train_loop_config={"where": sys.argv[1]},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="deaf"),
        )
        try:
            trainer.fit()
        except KeyboardInterrupt:
            pids = [int(name.removeprefix("up-")) for name in glob.glob("up-*")]
            print(f"left={[pid for pid in pids if os.path.exists(f'/proc/{pid}')]} of {len(pids)}", flush=True)
"""


def _journal(scripts: Scripts, run: str) -> list[dict[str, Any]]:
    """What the head decided, in order."""
    records = []
    for path in sorted((scripts.storage / run / "journal").glob("*.log")):
        for line in path.read_text().splitlines():
            checksum, _, text = line.partition(" ")
            assert int(checksum, 16) == zlib.crc32(text.encode())
            records.append(json.loads(text))
    return records


@pytest.mark.parametrize("where", ["in C", "in a loop", "with a child"])
def test_ctrl_c_ends_a_run_that_ignores_everything_within_two_seconds(scripts: Scripts, where: str) -> None:
    script = scripts.start(DEAF, where)
    script.wait_for("ready", times=2)
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    records = _journal(scripts, "deaf")
    stopped = next(record["at"] for record in records if record["event"].startswith("StopRequested: interrupted"))
    ended = records[-1]
    assert ended["commands"] == ["EndRun: aborted, stopped: interrupted"], records
    assert ended["at"] - stopped < PROMISED, records
    events = {record["event"] for record in records}
    assert {"WorkerExited: rank 0, signal 9", "WorkerExited: rank 1, signal 9"} <= events, "they were deaf indeed"
    processes = 4 if where == "with a child" else 2
    assert f"left=[] of {processes}" in script.output, "no process of the run is there when `fit()` has raised"
    run = scripts.storage / "deaf"
    assert json.loads((run / "run.json").read_text())["status"] == "aborted"
    reported = [json.loads(line)["step"] for line in (run / "result.json").read_text().splitlines()]
    assert reported == [1], "what was reported is kept"


def test_a_second_ctrl_c_ends_the_run_at_once(scripts: Scripts) -> None:
    script = scripts.start(WAITING, "stubborn")
    script.wait_for("worker up", times=2)
    script.send(signal.SIGINT)
    script.wait_for("interrupted: stopping the run")
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    assert "interrupted: stopping the run, at once" in script.output
    assert script.output.count("fit ended with KeyboardInterrupt") == 1


def test_the_driver_can_go_on_after_ctrl_c(scripts: Scripts) -> None:
    script = scripts.start(WAITING, "polite", "again")
    script.wait_for("worker up", times=2)
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    assert "then returned 5" in script.output


def test_ctrl_c_without_an_except_clause_ends_the_script_as_python_does(scripts: Scripts) -> None:
    script = scripts.start("""
        import time
        from carril import train

        def loop():
            print("worker up", flush=True)
            time.sleep(1000)

        train.DataParallelTrainer(loop).fit()
    """)
    script.wait_for("worker up")
    script.send(signal.SIGINT)
    assert script.finish() == -signal.SIGINT, script.output
    assert script.output.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_while_the_group_waits_for_room_ends_the_wait(scripts: Scripts) -> None:
    script = scripts.start("""
        import threading, time
        import carril
        from carril import train

        def hold():
            print("holds", flush=True)
            time.sleep(1000)

        def trainer(function):
            return train.DataParallelTrainer(function, scaling_config=train.ScalingConfig(num_workers=2))

        def holder():
            try:
                trainer(hold).fit()
            except Exception as error:
                print("the other one:", type(error).__name__, flush=True)

        carril.init(num_cpus=2)
        threading.Thread(target=holder, daemon=True).start()
        while carril.available_resources().get("CPU", 0) > 0:
            time.sleep(0.01)
        try:
            trainer(lambda: None).fit()
        except KeyboardInterrupt:
            print("the wait is over", flush=True)
            carril.shutdown()
    """)
    script.wait_for("waiting: asks for 2 CPU, free is 0 CPU")
    script.send(signal.SIGINT)
    script.wait_for("the wait is over")
    assert script.finish() == 0, script.output


def test_ctrl_c_during_the_start_of_workers_leaves_nothing(scripts: Scripts) -> None:
    # The function's module takes its time in the worker: the group is started and no rank is ready.
    scripts.write(
        """
        import os, time

        if os.environ.get("RANK"):
            print("loading", flush=True)
            time.sleep(1000)

        def loop():
            raise AssertionError("never reached")
        """,
        "slow_module.py",
    )
    script = scripts.start("""
        from carril import train
        import slow_module

        try:
            train.DataParallelTrainer(slow_module.loop, scaling_config=train.ScalingConfig(num_workers=2)).fit()
        except KeyboardInterrupt:
            print("interrupted well", flush=True)
    """)
    script.wait_for("loading", times=2)
    began = time.monotonic()
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    assert time.monotonic() - began < AT_MOST
    assert re.search("^interrupted well$", script.output, re.MULTILINE)


def test_a_terminal_that_closes_ends_everything(scripts: Scripts) -> None:
    script = scripts.start(WAITING, "stubborn")
    script.wait_for("worker up", times=2)
    script.send(signal.SIGHUP)
    assert script.finish() == -signal.SIGHUP
    wait_until(lambda: not script.related(), "the end of all processes", lambda: script.related())


def test_a_function_that_waits_in_a_call_of_the_system_can_clean_up(scripts: Scripts) -> None:
    script = scripts.start("""
        import os
        from carril import train

        def loop():
            end, _ = os.pipe()
            print("worker up", flush=True)
            try:
                os.read(end, 1)
            finally:
                open("cleaned", "w").close()

        try:
            train.DataParallelTrainer(loop).fit()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    script.wait_for("worker up")
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    assert (scripts.directory / "cleaned").exists(), "the call ends when the function has to end"
