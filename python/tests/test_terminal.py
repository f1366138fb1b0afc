"""A run on a terminal, seen as a person sees it: lines that stand in place below whatever the workers print."""

import re
import sys
from pathlib import Path

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401
from terminals import CTRL_C, CTRL_Z, Terminal, Terminals, terminals_fixture  # noqa: F401

# Each loop goes on until the test has seen enough, which it says with a file.
TRAIN = """
    import os, sys, time
    from carril import train

    def loop(config):
        {body}

    if __name__ == "__main__":
        train.DataParallelTrainer(
            loop,
            train_loop_config={{}},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="shown"{run}),
        ).fit()
"""

WAIT = "\n        while not os.path.exists('seen'): time.sleep(0.01)"
REPORT = """
        step = 0
        while not train.collective.broadcast_from_rank_zero(os.path.exists('seen')):
            step += 1
            saved = train.Checkpoint.from_dict({'step': step}) if step <= 2 and train.get_context().get_world_rank() == 0 else None
            train.report({'loss': 0.25, 'word': '日本語', 'broken': 'two\\nlines \\x1b[2J'}, checkpoint=saved)
            time.sleep(0.02)"""


def source(body: str, run: str = "") -> str:
    return TRAIN.format(body=body, run=run)


def end(terminal: Terminal, directory: Path) -> str:
    """Lets the run end well; returns everything that was shown."""
    (directory / "seen").touch()
    assert terminal.finish() == 0, terminal.everything
    return terminal.everything


def block(terminal: Terminal) -> list[str]:
    """The lines that stand in place, without what the group uses: that comes when the run is a few seconds old."""
    lines = [line for line in terminal.screen.splitlines() if " CPUs · " not in line]
    first = [at for at, line in enumerate(lines) if line.startswith("carril 0:")]
    assert len(first) == 1, terminal.screen
    return lines[first[0] :]


def test_the_run_stands_in_place_and_then_only_the_closing_lines_do(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start(source(REPORT))
    terminal.wait_for("2 checkpoints")
    terminal.wait_for("/s")
    head, facts = block(terminal)
    assert re.fullmatch(r"carril 0:\d\d · running · 2 workers on \S+ · shown", head)
    assert re.fullmatch(
        r"  report [\d,]+ · [\d.]+/s · 2 checkpoints · loss 0\.25 · word 日本語 · broken two lines.*", facts
    )
    shown = end(terminal, scripts.directory)
    assert "carril 0:" not in shown
    assert re.match(r"carril: `shown` finished: [\d,]+ reports, 2 checkpoints in ", shown)
    assert shown.splitlines()[-1].split() == ["carril", "explain", "shown"]


def test_the_time_goes_on_while_nothing_happens(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start(source(WAIT))
    for time in ("carril 0:01 · running", "carril 0:02 · running", "carril 0:03 · running"):
        terminal.wait_for(time)
    assert len(block(terminal)) == 1
    end(terminal, scripts.directory)


def test_lines_of_workers_scroll_above_it_whole_and_in_order(terminals: Terminals, scripts: Scripts) -> None:
    body = (
        "for n in range(3000):\n            print(f'line {n} 漢字 ' + '=' * (n % 40)); train.report({'n': n})" + REPORT
    )
    terminal = terminals.start(source(body))
    terminal.wait_for("line 2999", times=2)
    terminal.wait_for("loss 0.25")
    assert len(block(terminal)) == 2
    shown = end(terminal, scripts.directory).splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("carril: `shown` finished"))
    for rank in (0, 1):
        lines = [line for line in shown[:at] if line.startswith(f"(rank {rank}) ")]
        assert lines == [f"(rank {rank}) line {n} 漢字 {'=' * (n % 40)}".rstrip() for n in range(3000)]
    assert at == 6000, [line for line in shown[:at] if not line.startswith("(rank ")]


def test_a_line_that_is_wider_than_the_terminal_is_wrapped_and_harms_nothing(
    terminals: Terminals, scripts: Scripts
) -> None:
    terminal = terminals.start(source("print('x' * 200 + 'end', flush=True)" + WAIT), columns=50)
    terminal.wait_for("end", times=2)
    terminal.wait_for("carril 0:01")
    assert terminal.screen.count("carril 0:") == 1
    shown = end(terminal, scripts.directory)
    assert shown.replace("\n", "").count("x" * 200 + "end") == 2


@pytest.mark.parametrize("columns", [31, 32, 33, 34])
def test_what_stands_in_place_is_never_wider_than_the_terminal(
    terminals: Terminals, scripts: Scripts, columns: int
) -> None:
    terminal = terminals.start(source(REPORT), columns=columns)
    terminal.wait_for("\n  report ")
    terminal.wait_for("carril 0:01")
    lines = block(terminal)
    assert len(lines) == 2 and lines[1].startswith("  report ") and lines[0].endswith("…")
    end(terminal, scripts.directory)


def test_a_terminal_of_another_size_gets_other_lines(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start(source(REPORT))
    terminal.wait_for("loss 0.25")
    terminal.resize(30, 10)
    terminal.wait_for("…\n  report")
    assert len(block(terminal)) == 2
    terminal.resize(100, 3)
    terminal.wait_for("· shown\n  report")
    assert len(block(terminal)) == 2
    terminal.resize(100, 2)
    terminal.wait_for("· shown")
    end(terminal, scripts.directory)
    assert "finished" in terminal.everything


def test_a_waiting_run_says_why(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start("""
        import os, threading, time
        import carril
        from carril import train

        def hold():
            while not os.path.exists("seen"): time.sleep(0.01)

        def fit(name, function):
            train.DataParallelTrainer(
                function, scaling_config=train.ScalingConfig(num_workers=2), run_config=train.RunConfig(name=name)
            ).fit()

        carril.init(num_cpus=2)
        first = threading.Thread(target=fit, args=("first", hold))
        first.start()
        while carril.available_resources().get("CPU", 0) > 0: time.sleep(0.01)
        fit("second", lambda: None)
        first.join()
    """)
    # Two runs at once stand below each other.
    terminal.wait_for("waiting · second")
    terminal.wait_for("· first")
    terminal.wait_for("running · 2 workers")
    lines = sorted(line for line in terminal.screen.splitlines() if line.startswith("carril 0:"))
    assert re.fullmatch(r"carril 0:\d\d · running · 2 workers on \S+ · first", lines[0])
    assert re.fullmatch(r"carril 0:\d\d · waiting · second · asks for 2 CPU, free is 0 CPU: waits for.*", lines[1])
    shown = end(terminal, scripts.directory)
    assert "carril 0:" not in shown and shown.count(" finished: ") == 2


def test_what_a_callback_prints_is_not_mixed_with_it(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start("""
        import os, time
        from carril import train

        class Talks(train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                print("report", metrics[0]["step"], flush=True)

        def loop():
            for step in range(50):
                train.report({"step": step})
                time.sleep(0.02)
            while not os.path.exists("seen"): time.sleep(0.01)

        train.DataParallelTrainer(loop, run_config=train.RunConfig(name="shown", callbacks=[Talks()])).fit()
    """)
    terminal.wait_for("report 50 ·")
    shown = end(terminal, scripts.directory).splitlines()
    assert shown[:50] == [f"report {step}" for step in range(50)]
    assert shown[50].startswith("carril: `shown` finished")


def test_ctrl_c_says_what_it_does_and_the_second_one_too(terminals: Terminals, scripts: Scripts) -> None:
    body = "import signal; signal.signal(15, lambda *_: None); train.report({'n': 1})" + WAIT
    terminal = terminals.start(source(body))
    terminal.wait_for("report 1")
    terminal.type(CTRL_C)
    terminal.wait_for("carril: interrupted: stopping the run; Ctrl-C again ends it at once")
    terminal.type(CTRL_C)
    assert terminal.finish() == -2, terminal.everything
    shown = terminal.everything
    assert "carril: interrupted: stopping the run, at once" in shown
    assert "carril: `shown` aborted after 1 report in " in shown and "stopped: interrupted" in shown
    assert shown.endswith("KeyboardInterrupt") and "carril 0:" not in shown


def test_ctrl_z_leaves_a_clean_terminal_the_run_goes_on_and_fg_brings_it_back(
    terminals: Terminals, scripts: Scripts
) -> None:
    path = scripts.write(source(REPORT))
    terminal = terminals.open("bash", "--norc", "--noprofile", "-i", PS1="$ ")
    terminal.wait_for("$")
    terminal.type(f"{sys.executable} {path.name}\n")
    terminal.wait_for("carril 0:01")
    terminal.type(CTRL_Z)
    terminal.wait_for("Stopped")
    assert "carril 0:" not in terminal.screen, terminal.screen
    reports = scripts.storage / "shown" / "result.json"
    before = len(reports.read_bytes())
    wait_until(lambda: len(reports.read_bytes()) > before + 1000, "reports of a run whose driver is stopped")
    terminal.type("fg\n")
    terminal.wait_for("carril 0:")
    (scripts.directory / "seen").touch()
    terminal.wait_for("carril explain shown")
    assert "carril 0:" not in terminal.screen
    terminal.type("exit\n")
    assert terminal.finish() == 0


def test_without_colour_there_is_none(terminals: Terminals, scripts: Scripts) -> None:
    for_both = source("print('\\x1b[31mred\\x1b[0m', flush=True)" + REPORT)
    coloured = terminals.start(for_both)
    coloured.wait_for("report ")
    end(coloured, scripts.directory)
    assert b"\x1b[32mrunning" in coloured.raw and b"(rank 0) \x1b[31mred" in coloured.raw
    (scripts.directory / "seen").unlink()
    (scripts.storage / "shown").rename(scripts.storage / "before")
    plain = terminals.start(for_both, NO_COLOR="1")
    plain.wait_for("report ")
    end(plain, scripts.directory)
    assert b"carril 0:" in plain.raw and b"(rank 0) red\r\n" in plain.raw
    assert not re.search(rb"\x1b\[[0-9;]*m", plain.raw)


def test_a_terminal_that_can_only_print_gets_plain_lines(terminals: Terminals, scripts: Scripts) -> None:
    scripts.directory.joinpath("seen").touch()
    terminal = terminals.start(source("print('\\x1b[31mred\\x1b[0m')"), TERM="dumb")
    assert terminal.finish() == 0
    assert b"\x1b" not in terminal.raw
    assert "carril: running: every rank runs the function" in terminal.everything
    assert terminal.everything.count(") red\n") == 2


def test_with_verbose_0_nothing_is_printed(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start(source("print('quiet'); train.report({'n': 1})", run=", verbose=0"))
    assert terminal.finish() == 0
    assert terminal.raw == b""
    assert (scripts.storage / "shown" / "ranks" / "rank_0.attempt_0.log").read_text() == "quiet\n"


def test_a_progress_bar_stands_in_place_and_its_last_state_scrolls_away(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start("""
        import os, time
        from carril.train._console import Console

        def wait(name):
            while not os.path.exists(name): time.sleep(0.01)

        console = Console("bars", "/nowhere", 1)
        console.output(1, b"\\r 10%|#         |\\r")
        wait("first")
        console.output(1, b" 20%|##        |\\r")
        console.output(0, b"a line\\n")
        wait("second")
        console.output(1, b"100%|##########|\\n")
        wait("seen")
        console.close()
    """)
    terminal.wait_for("(rank 1)  10%|#")
    assert block(terminal)[-1] == "  (rank 1)  10%|#         |"
    (scripts.directory / "first").touch()
    terminal.wait_for("(rank 1)  20%|##")
    terminal.wait_for("(rank 0) a line\ncarril 0:")
    assert " 10%" not in terminal.everything
    (scripts.directory / "second").touch()
    terminal.wait_for("(rank 1) 100%|##########|\ncarril 0:")
    assert end(terminal, scripts.directory) == "(rank 0) a line\n(rank 1) 100%|##########|"
