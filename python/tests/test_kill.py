"""kill -9 of each process in turn: what the run is allowed to survive it survives, and nothing is left.

How a run goes on is in test_recovery.py and test_head_loss.py. Here the workers have children of every awkward kind:
one that ignores SIGTERM, one in a session of its own that was executed, one in a session of its own that was only
forked.
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
            run_config=train.RunConfig(
                name="family",
                resume=True,
                failure_config=train.FailureConfig(max_infrastructure_failures=int(os.environ.get("SURVIVES", "0"))),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            print("raised", type(error).__name__, error.code, error.origin, flush=True)
            print(error, flush=True)
"""
KINDS = ("ignores", "own_group", "own_session", "forked_session")


def start_family(scripts: Scripts, *kinds: str, survives: int = 0) -> tuple[Script, list[int]]:
    script = scripts.start(FAMILY, *kinds, SURVIVES=str(survives))
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
    script, _ = start_family(scripts, *kinds, survives=1)
    head = script.head().pid
    old = {found.pid for found in script.related()} - {script.pid}
    assert len(old) == 2 + 2 + 2 * len(kinds), script.related()
    (directory,) = scripts.heads_directories()
    os.kill(head, signal.SIGKILL)
    script.wait_for(r"worker up (\d+)", times=4)
    wait_until(lambda: not {found.pid for found in script.related()} & old, "the end of the old ones", script.related)
    assert directory not in scripts.heads_directories(), "the new head has swept what the old one left"
    script.wait_for("child up", times=4 * len(kinds))
    os.kill(script.head().pid, signal.SIGKILL)
    assert script.finish() == 0, script.output
    assert "raised ConnectionLostError head-lost infrastructure" in script.output
    assert "once too often: `max_infrastructure_failures=1` is used up" in script.output
    script.is_alone()
    assert scripts.heads_directories() == []


def test_what_a_head_has_left_that_died_with_its_driver_is_swept_at_the_next_start(scripts: Scripts) -> None:
    script, _ = start_family(scripts)
    head = script.head().pid
    os.kill(script.pid, signal.SIGSTOP)  # it would start another one
    os.kill(head, signal.SIGKILL)
    os.kill(script.pid, signal.SIGKILL)
    assert script.finish() == -signal.SIGKILL
    script.is_alone()
    assert len(scripts.heads_directories()) == 1
    scripts.run("""
        import carril
        carril.init()
    """)
    assert scripts.heads_directories() == []


def test_a_driver_that_starts_again_waits_for_the_head_of_the_killed_one(scripts: Scripts) -> None:
    killed, _ = start_family(scripts)
    before = scripts.heads_directories()
    head = killed.head().pid
    os.kill(head, signal.SIGSTOP)  # it takes its time to end
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.finish() == -signal.SIGKILL
    again = scripts.start("""
        from carril import train

        run = train.RunConfig(name="family")
        print("returned", train.DataParallelTrainer(lambda: 7, run_config=run).fit().return_value)
    """)
    scripts.arrives("blobs/*", besides=before)  # the function, and the run is submitted
    os.kill(head, signal.SIGCONT)
    assert again.finish() == 0, again.output
    assert "returned 7" in again.output
    killed.is_alone()


def test_what_is_alive_is_not_swept(scripts: Scripts) -> None:
    script, _ = start_family(scripts)
    (alive,) = scripts.heads_directories()
    scripts.run("""
        from carril import train
        print(train.DataParallelTrainer(lambda: 7).fit().return_value)
    """)
    assert scripts.heads_directories() == [alive]
    assert len(script.related("private-head")) == 1
    script.send(signal.SIGKILL)
    assert script.finish() == -signal.SIGKILL


def test_a_head_that_was_killed_between_two_runs_is_started_again(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, signal
        import carril
        from carril import train

        trainer = train.DataParallelTrainer(lambda: os.getppid())
        head = trainer.fit().return_value
        os.kill(head, signal.SIGKILL)
        result = trainer.fit()
        assert result.return_value != head
        print("a new head, restarts:", result.restarts)
        carril.shutdown()
        assert trainer.fit().return_value not in (head, result.return_value)
        print("and after a shutdown")
    """)
    assert script.finish() == 0, script.output
    assert "a new head, restarts: []" in script.output, "the run had not begun: its budget is whole"
    assert "and after a shutdown" in script.output


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
