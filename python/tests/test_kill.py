"""kill -9 of each process in turn: the run ends with its cause, and nothing is left.

The workers have children of every awkward kind: one that ignores SIGTERM, one in a session of its own that was
executed, one in a session of its own that was only forked.
"""

import os
import signal
from pathlib import Path

import pytest
from driver_scripts import Script, Scripts, scripts_fixture, wait_until  # noqa: F401

FAMILY = """
    import os, signal, subprocess, sys, time
    from carril import train

    def loop(kinds):
        ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('child up', flush=True); time.sleep(1000)"
        waiting = "import time; print('child up', flush=True); time.sleep(1000)"
        if "ignores" in kinds:
            subprocess.Popen([sys.executable, "-c", ignoring])
        if "own_group" in kinds:
            subprocess.Popen([sys.executable, "-c", waiting], process_group=0)
        if "own_session" in kinds:
            subprocess.Popen([sys.executable, "-c", waiting], start_new_session=True)
        if "forked_session" in kinds and os.fork() == 0:
            os.setsid()
            print("child up", flush=True)
            time.sleep(1000)
        train.report({"step": 1})
        print(f"worker up {os.getpid()}", flush=True)
        time.sleep(1000)

    if __name__ == "__main__":
        trainer = train.DataParallelTrainer(
            loop,
            train_loop_config={kind: True for kind in sys.argv[1:]},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="family"),
        )
        try:
            trainer.fit()
        except Exception as error:
            print("raised", type(error).__name__, error.code, error.origin, flush=True)
            print(error, flush=True)
"""
KINDS = ("ignores", "own_group", "own_session", "forked_session")


def start_family(scripts: Scripts, *kinds: str) -> tuple[Script, list[int]]:
    script = scripts.start(FAMILY, *kinds)
    script.wait_for("child up", times=2 * len(kinds))
    return script, [int(pid) for pid in script.wait_for(r"worker up (\d+)", times=2)]


def test_a_killed_driver_takes_everything_with_it(scripts: Scripts) -> None:
    script, _ = start_family(scripts, *KINDS)
    os.kill(script.pid, signal.SIGKILL)
    assert script.finish() == -signal.SIGKILL
    script.is_alone()
    wait_until(lambda: not scripts.heads_directories(), "the end of the head's directory", scripts.heads_directories)
    # What was reported is in the files, and the run is known to have ended.
    assert '"step": 1' in (scripts.storage / "family" / "result.json").read_text()
    assert '"status": "aborted"' in (scripts.storage / "family" / "run.json").read_text()


def test_a_killed_worker_fails_the_run_with_its_rank_and_signal(scripts: Scripts) -> None:
    script, _ = start_family(scripts, *KINDS)
    victim = next(line for line in script.output.splitlines() if line.startswith("(rank 1) worker up"))
    os.kill(int(victim.split()[-1]), signal.SIGKILL)
    assert script.finish() == 0, script.output
    assert "raised WorkerGroupError worker-killed infrastructure" in script.output
    assert "rank 1 failed: the worker process was ended by SIGKILL" in script.output
    script.is_alone()


def test_the_children_of_a_killed_worker_are_gone_when_fit_has_raised(scripts: Scripts) -> None:
    script = scripts.start(
        FAMILY.replace('print("raised"', 'time.sleep(1000); print("raised"').replace(
            "except Exception as error:", "except Exception as error:\n            print('fit is over', flush=True)"
        ),
        *KINDS,
    )
    script.wait_for("child up", times=8)
    pid = int(script.wait_for(r"worker up (\d+)", times=2)[0])
    os.kill(pid, signal.SIGKILL)
    script.wait_for("fit is over")
    # Only the driver, its head and the process that workers are forked from are still there.
    names = sorted(found.command.split()[1:3] for found in script.related())
    assert len(names) == 3, script.related()
    script.send(signal.SIGKILL)


@pytest.mark.parametrize("kinds", [("ignores", "own_group"), ("own_session", "forked_session")])
def test_a_killed_head_takes_the_workers_and_their_children_with_it(scripts: Scripts, kinds: tuple[str, ...]) -> None:
    script, workers = start_family(scripts, *kinds)
    os.kill(script.head().pid, signal.SIGKILL)
    assert script.finish() == 0, script.output
    assert "raised ConnectionLostError head-lost infrastructure" in script.output
    wait_until(
        lambda: not {found.pid for found in script.related()} & set(workers), "the end of the workers", script.related
    )
    script.is_alone()
    sweep(scripts)


def sweep(scripts: Scripts) -> None:
    """What a killed head has left in the file system goes at the next start."""
    assert len(scripts.heads_directories()) == 1
    scripts.run("""
        import carril
        carril.init()
    """)
    assert scripts.heads_directories() == []


def test_what_is_alive_is_not_swept(scripts: Scripts) -> None:
    script, _ = start_family(scripts)
    (alive,) = scripts.heads_directories()
    scripts.run("""
        from carril import train
        print(train.DataParallelTrainer(lambda: 7).fit().return_value)
    """)
    assert scripts.heads_directories() == [alive]
    assert len(script.related("private-head")) == 1
    script.send(signal.SIGTERM)
    assert script.finish() == -signal.SIGTERM


def test_after_a_killed_head_the_driver_can_start_anew(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, signal
        import carril
        from carril import train

        trainer = train.DataParallelTrainer(lambda: os.getppid())
        head = trainer.fit().return_value
        os.kill(head, signal.SIGKILL)
        try:
            trainer.fit()
        except carril.exceptions.ConnectionLostError as error:
            print("raised", error.code)
        carril.shutdown()
        assert trainer.fit().return_value != head
        print("a new head")
    """)
    assert script.finish() == 0, script.output
    assert "raised head-lost" in script.output
    assert "a new head" in script.output


def test_a_killed_zygote_is_no_reason_to_fail(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, signal, time
        import carril
        from carril import train

        def trainer():
            return train.DataParallelTrainer(lambda: 11, run_config=train.RunConfig(verbose=2))

        trainer().fit()
        print("first", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
        print("second returned", trainer().fit().return_value)
    """)
    script.wait_for("first")
    (zygote,) = script.related("carril._internal.zygote")
    os.kill(zygote.pid, signal.SIGKILL)
    Path(scripts.directory / "go").touch()
    assert script.finish() == 0, script.output
    assert "second returned 11" in script.output
