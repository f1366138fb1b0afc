"""What `fit()` prints where there is no terminal: every message in a snapshot, read as a user of a log file would.

The order of lines is made certain by barriers: what a rank prints after one comes after everything that was said before.
"""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from driver_scripts import Script, Scripts, scripts_fixture, wait_until  # noqa: F401
from runs import fit
from snapshots import check
from test_notebook import Notebook, notebook_fixture  # noqa: F401

SCRIPT = """
    import os, sys, time
    import carril
    from carril import train

    def loop(config):
        train.collective.barrier()
        rank = train.get_context().get_world_rank()
        {body}

    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config={{}},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="digits"{run}),
    )
    {fit}
"""


def source(body: str, run: str = "", fit: str = "trainer.fit()") -> str:
    return SCRIPT.format(body=body.replace("\n", "\n        "), run=run, fit=fit.replace("\n", "\n    "))


def check_output(name: str, script: Script, scripts: Scripts) -> None:
    check(name, script.output, (scripts.directory, "HOME"))


def test_a_run_that_finishes(scripts: Scripts) -> None:
    script = scripts.start(
        source(
            "if rank == 0: print('loading', flush=True)\n"
            "train.collective.barrier()\n"
            "for step in range(3):\n"
            "    saved = train.Checkpoint.from_dict({'step': step}) if step == 2 else None\n"
            "    loss = 1 / (step + rank + 1)\n"
            "    train.report({'loss': loss, 'step': step, 'top': {'1': 0.5}, 'word': '日本'}, checkpoint=saved)\n"
        )
    )
    assert script.finish() == 0, script.output
    check_output("run_finishes", script, scripts)


def test_a_run_without_reports_in_a_directory_of_its_own(scripts: Scripts) -> None:
    script = scripts.start(source("", run=", storage_path=os.path.abspath('my results')"))
    assert script.finish() == 0, script.output
    check_output("run_without_reports", script, scripts)


def test_a_run_that_fails_on_one_rank(scripts: Scripts) -> None:
    script = scripts.start(
        source(
            "train.report({'loss': 1.0})\n"
            "train.collective.barrier()\n"
            "if rank == 1: {}['missing']\n"
            "train.collective.barrier()\n"
        )
    )
    assert script.finish() == 1, script.output
    check_output("run_fails", script, scripts)
    kept = scripts.storage / "digits"
    check("run_fails_error", (kept / "error.txt").read_text(), (scripts.directory, "HOME"))


def test_a_run_whose_process_ends(scripts: Scripts) -> None:
    script = scripts.start(
        source("if rank == 0: print('the last words', flush=True); os._exit(3)\ntime.sleep(1000)"),
    )
    assert script.finish() == 1, script.output
    check_output("run_exits", script, scripts)


def test_a_run_that_is_interrupted(scripts: Scripts) -> None:
    script = scripts.start(
        source(
            "train.report({'loss': 1.0})\n"
            "train.collective.barrier()\n"
            "if rank == 0: print('up', flush=True)\n"
            "time.sleep(1000)",
            fit="try:\n    trainer.fit()\nexcept KeyboardInterrupt:\n    print('KeyboardInterrupt')",
        )
    )
    script.wait_for("up")
    script.send(signal.SIGINT)
    assert script.finish() == 0, script.output
    check_output("run_interrupted", script, scripts)


def test_a_run_that_waits_for_resources(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, threading, time
        import carril
        from carril import train

        def hold():
            while not os.path.exists("seen"): time.sleep(0.01)

        def fit(name, function, verbose):
            train.DataParallelTrainer(
                function,
                scaling_config=train.ScalingConfig(num_workers=2),
                run_config=train.RunConfig(name=name, verbose=verbose),
            ).fit()

        carril.init(num_cpus=2)
        first = threading.Thread(target=fit, args=("first", hold, 0))
        first.start()
        while carril.available_resources().get("CPU", 0) > 0: time.sleep(0.01)
        fit("second", lambda: None, 1)
        first.join()
    """)
    script.wait_for("waiting: ")
    (scripts.directory / "seen").touch()
    assert script.finish() == 0, script.output
    check_output("run_waits", script, scripts)


def test_a_run_that_hangs(scripts: Scripts) -> None:
    script = scripts.start(source("if rank == 1: time.sleep(1000)\ntrain.collective.barrier()", run=", hang_timeout=1"))
    assert script.finish() == 1, script.output
    check_output("run_hangs", script, scripts)


def test_a_run_whose_callback_fails(scripts: Scripts) -> None:
    script = scripts.start(
        "from carril import train\n"
        "class Watches(train.UserCallback):\n"
        "    def after_report(self, run_context, metrics, checkpoint):\n"
        "        raise ValueError('no such column')\n"
        "def loop():\n"
        "    train.report({'loss': 1.0})\n"
        "    import time\n"
        "    time.sleep(1000)\n"
        "config = train.RunConfig(name='digits', callbacks=[Watches()])\n"
        "train.DataParallelTrainer(loop, run_config=config).fit()\n"
    )
    assert script.finish() == 1, script.output
    check_output("run_callback_fails", script, scripts)


def test_a_run_in_a_log_has_a_line_of_progress_now_and_then(
    storage: Path, head: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from carril.train import _console

    monkeypatch.setattr(_console, "_SECONDS_IN_A_LOG", 0.25)

    def function() -> None:
        import time

        from carril import train

        for _ in range(40):
            train.report({"loss": 0.5, "a": 1, "b": 2, "c": 3, "d": 4})
            time.sleep(0.03)

    began = time.monotonic()
    fit(function, storage, workers=1, name="log")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("carril: report ")]
    # A line every 0.25 s at most, however long a busy machine takes for the 40 reports.
    assert 1 <= len(lines) <= (time.monotonic() - began) / 0.25 + 2
    # A rate is known when two looks were far enough from each other, which a busy machine does not promise.
    rate = r"( · [\d.]+/s)?"
    assert re.fullmatch(rf"carril: report \d+{rate} · loss 0\.5 · a 1 · b 2 · c 3 · [\d.]+ s", lines[-1]), lines


def test_tqdm_in_workers_becomes_few_lines_and_its_last_state_is_one_of_them(scripts: Scripts) -> None:
    script = scripts.start(
        source(
            "from tqdm import tqdm\n"
            "for _ in tqdm(range(300), desc=f'epoch of {rank}', ncols=60, mininterval=0): time.sleep(0.001)\n"
            "print('done')\n"
        )
    )
    assert script.finish() == 0, script.output
    for rank in (0, 1):
        shown = re.findall(rf"^\(rank {rank}\) (.*)$", script.output, re.MULTILINE)
        # The bar begins with a state, and ends with its last one; in between a line every five seconds.
        assert 2 <= len(shown) <= 4, shown
        assert re.fullmatch(rf"epoch of {rank}: 100%\|█+\| 300/300 \[.*\]", shown[-2]) and shown[-1] == "done"
        kept = scripts.storage / "digits" / "ranks" / f"rank_{rank}.attempt_0.log"
        assert kept.read_bytes().count(b"\r") >= 300, "the file keeps every state"
    assert "\r" not in script.output


def test_logging_and_tracebacks_in_workers_keep_their_rank_on_every_line(scripts: Scripts) -> None:
    script = scripts.start(
        source(
            "import logging\n"
            "logging.basicConfig(level='INFO', format='%(levelname)s %(message)s')\n"
            "try: 1 / 0\n"
            "except ZeroDivisionError: logging.exception('caught on %d', rank)\n"
        )
    )
    assert script.finish() == 0, script.output
    for rank in (0, 1):
        lines = re.findall(rf"^\(rank {rank}\) (.*)$", script.output, re.MULTILINE)
        assert lines[0] == f"ERROR caught on {rank}" and lines[1] == "Traceback (most recent call last):"
        assert lines[-1] == "ZeroDivisionError: division by zero"
    assert all(line.startswith(("(rank ", "carril: ", "  ")) for line in script.output.splitlines())


def test_a_console_that_knows_only_ascii_shows_what_it_can(scripts: Scripts) -> None:
    script = scripts.start(source("print('日本 done'); train.report({'word': '日本'})"), PYTHONIOENCODING="ascii")
    assert script.finish() == 0, script.output
    assert re.search(r"^  word +\?\? +\?\? +\?\?$", script.output, re.MULTILINE), script.output
    assert "(rank 0) \\u65e5\\u672c done" in script.output


def test_a_reader_that_has_gone_does_not_end_the_run(scripts: Scripts) -> None:
    path = scripts.write(source("for n in range(2000): print('x' * 100, flush=True)\ntrain.report({'n': 1})"))
    reader = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=scripts.directory,
        env=scripts.environment(),
    )
    assert reader.stdout is not None and reader.stderr is not None
    reader.stdout.readline()
    reader.stdout.close()
    errors = reader.stderr.read().decode()
    reader.wait()
    reader.stderr.close()
    record = (scripts.storage / "digits" / "run.json").read_text()
    assert '"status": "finished"' in record, errors
    assert "carril" not in errors, errors


def test_a_result_shows_itself_in_a_notebook(storage: Path, head: None) -> None:
    def function() -> None:
        from carril import train

        train.report({"loss": 0.25, "note": "<b>"}, checkpoint=train.Checkpoint.from_dict({"step": 1}))

    result = fit(function, storage, workers=1, name="html", verbose=0)
    check("result_html", result._repr_html_().replace("<tr>", "\n<tr>"), (storage, "STORAGE"))


def test_a_notebook_gets_one_output_that_is_kept_up_to_date(notebook: Notebook) -> None:
    shown = notebook.run("""
        from carril import train

        def loop():
            rank = train.get_context().get_world_rank()
            print("in the worker")
            for step in range(3):
                saved = train.Checkpoint.from_dict({"step": step}) if step == 2 else None
                train.report({"loss": 1 / (step + rank + 1), "note": "<b>"}, checkpoint=saved)

        result = train.DataParallelTrainer(
            loop, scaling_config={"num_workers": 2}, run_config=train.RunConfig(name="digits")
        ).fit()
    """)
    # It began as `starting`; what is there in the end is its last state.
    # Whether there are curves depends on how many reports were seen.
    html = re.sub(r"<div><div style='display:inline.*</svg></div></div>", "", shown["text/html"])
    html = html.replace("<br>", "\n<br>").replace("<t", "\n<t")
    check("notebook_html", re.sub(r"\d+:\d\d\n", "TIME\n", html))
    assert shown["text"].count("in the worker\n") == 2
    assert "`digits` finished: 3 reports, 1 checkpoint in " in shown["text"]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"plain\n"], ["plain"]),
        ([b"10%\r50%\r100%\n"], ["100%"]),
        # The first state of a bar is a line, and its last one; those between come every five seconds.
        ([b"\r 1%\r", b" 2%\r", b" 3%\r", b"100%\nnext\n"], [" 1%", "100%", "next"]),
        ([b"\r50%"], ["50%", "50%"]),
        ([b"\r50%\r", b"     \r", b"after\n"], ["50%", "after"]),
        ([b"windows\r\n", b"\n", b"ends\r\n"], ["windows", "", "ends"]),
        # Several bars: each state is a line of its own that goes up again.
        ([b"\router\n\rinner 1\x1b[A\n\rinner 2\x1b[A\n", b"\rinner 3\x1b[A\n"], ["outer", "inner 2", "inner 3"]),
        ([b"caf\xc3\xa9 \xff\xfe\n"], ["café \ufffd\ufffd"]),
        ([b"\x1b[31mred\x1b[0m \x1b[2J\x1b[10;10Hmoved\x07\x08\n"], ["\x1b[31mred\x1b[0m moved\x1b[0m"]),
        ([b"\x1b]0;a title\x07text\ttab\n"], ["text\ttab"]),
        ([b"not ended"], ["not ended"]),
    ],
)
def test_what_ranks_write_becomes_lines(
    pieces: list[bytes], lines: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from carril.train._console import Console

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    console = Console("name", "/path", 1)
    for piece in pieces:
        console.output(3, piece)
    console.close()
    assert capsys.readouterr().out == "".join(f"(rank 3) {line}\n" for line in lines)
