"""`carril resume RUN`: the command that began a run is run again where it was run, and resumes that very run."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from driver_scripts import Scripts, scripts_fixture, values, wait_until  # noqa: F401
from test_notebook import Notebook

from carril._internal.command import find_command

CARRIL = find_command()

# Its function fails at its second step until the file `go` is beside the script. The run has a name that is made up.
SCRIPT = """
    import os, sys
    from carril import train

    def loop(config):
        latest = train.get_checkpoint()
        begin = latest.to_dict()["step"] + 1 if latest else 0
        for step in range(begin, 4):
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
            if step == 1 and not os.path.exists(config["go"]):
                raise RuntimeError("on purpose")
        return begin, "CARRIL_RESUME" in os.environ

    if __name__ == "__main__":
        go = os.path.join(os.path.dirname(os.path.abspath(__file__)), "go")
        result = train.DataParallelTrainer(loop, train_loop_config={"go": go}).fit()
        print(f"returned={result.return_value}")
        print(f"path={result.path}")
        print(f"arguments={sys.argv[1:]}")
        print(f"directory={os.getcwd()}")
        sys.exit(7)
"""


class Ended(NamedTuple):
    """What came of a command."""

    code: int
    output: str


def runs_of(storage: Path) -> list[Path]:
    return sorted(path.parent for path in storage.glob("*/run.json"))


def record(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def failed(scripts: Scripts, *command: str, storage: Path | None = None, **more: Any) -> Path:
    """The one run of a command that is expected to fail."""
    script = scripts.start_command(*command, **more)
    assert script.finish() not in (0, 7), script.output
    (run,) = runs_of(storage or scripts.storage)
    return run


def resumed(scripts: Scripts, run: Path | str, *options: str, **more: Any) -> Ended:
    (scripts.directory / "go").touch()
    script = scripts.start_command(CARRIL, "resume", str(run), *options, **more)
    return Ended(script.finish(), script.output)


def refused(scripts: Scripts, run: Path | str) -> str:
    ended = resumed(scripts, run)
    assert ended.code == 2, ended.output
    return ended.output


def went_on(ended: Ended, run: Path) -> None:
    """From the step after the failure, in the same directory; the exit code is the script's."""
    assert ended.code == 7, ended.output
    found = values(ended.output)
    assert (found["returned"], found["path"]) == ("(2, False)", str(run)), ended.output
    assert runs_of(run.parent) == [run]
    assert record(run)["status"] == "finished"


@pytest.mark.parametrize("way", ["name", "id", "directory", "slash", "uri", "relative"])
def test_a_run_with_a_made_up_name_goes_on_however_it_is_named(scripts: Scripts, way: str) -> None:
    script = scripts.write(SCRIPT)
    run = failed(scripts, sys.executable, str(script))
    ways = {
        "name": run.name,
        "id": record(run)["run_id"][:6],
        "directory": str(run),
        "slash": f"{run}/",
        "uri": f"file://{run}",
        "relative": str(run.relative_to(scripts.directory)),
    }
    went_on(resumed(scripts, ways[way]), run)


def test_a_driver_that_was_killed_goes_on_where_it_was(scripts: Scripts) -> None:
    source = """
        import sys, time
        from carril import train

        def loop():
            latest = train.get_checkpoint()
            if latest is not None:
                return latest.to_dict()
            train.report({}, checkpoint=train.Checkpoint.from_dict({"saved": 1}))
            while True:
                time.sleep(0.01)

        print(f"returned={train.DataParallelTrainer(loop).fit().return_value}")
    """
    script = scripts.start(source)
    wait_until(
        lambda: list(scripts.storage.glob("*/checkpoint_000000/.manifest.json")), "a checkpoint", lambda: script.output
    )
    (run,) = runs_of(scripts.storage)
    assert "is live: process" in refused(scripts, run.name)
    os.kill(script.pid, signal.SIGKILL)
    assert script.finish() == -signal.SIGKILL
    script.is_alone()
    again = resumed(scripts, run)
    assert values(again.output)["returned"] == "{'saved': 1}", again.output
    assert runs_of(scripts.storage) == [run]


def test_the_command_has_its_directory_and_arguments_wherever_it_went(scripts: Scripts) -> None:
    """The script is named relative to a directory that it leaves before it calls `fit()`."""
    scripts.write(SCRIPT.replace("go = os.path", 'os.chdir("/"); go = os.path', 1), "below/train.py")
    elsewhere = scripts.directory / "elsewhere"
    elsewhere.mkdir()
    command = (sys.executable, "-u", "-X", "dev", "below/../below/train.py", "--lr", "0.1", "two words")
    run = failed(scripts, *command)
    assert record(run)["asked"]["directory"] == str(scripts.directory)
    (scripts.directory / "below" / "go").touch()
    again = resumed(scripts, run, cwd=elsewhere)
    went_on(again, run)
    found = values(again.output)
    assert (found["arguments"], found["directory"]) == ("['--lr', '0.1', 'two words']", "/")


def test_a_module_and_code_on_the_command_line_are_run_again(scripts: Scripts) -> None:
    scripts.write(SCRIPT, "package/train.py")
    scripts.write("", "package/__init__.py")
    run = failed(scripts, sys.executable, "-m", "package.train", "x")
    (scripts.directory / "package" / "go").touch()
    went_on(resumed(scripts, run), run)
    (scripts.directory / "go").unlink()
    other = scripts.directory / "other"
    code = SCRIPT.replace("os.path.dirname(os.path.abspath(__file__))", repr(str(scripts.directory)))
    code = code.replace(
        "train_loop_config=", f"run_config=train.RunConfig(storage_path={str(other)!r}), train_loop_config="
    )
    run = failed(scripts, sys.executable, "-c", textwrap.dedent(code), storage=other)
    went_on(resumed(scripts, run), run)


def test_among_several_runs_of_one_script_the_one_that_is_meant_goes_on(scripts: Scripts) -> None:
    source = """
        import os, sys
        from carril import train

        def first():
            train.report({"a": 1})

        def second(config):
            latest = train.get_checkpoint()
            if latest is not None:
                return latest.to_dict()["number"]
            train.report({}, checkpoint=train.Checkpoint.from_dict(config))
            if config["number"] == 1 and not os.path.exists("go"):
                raise RuntimeError("on purpose")
            return "anew"

        def fit(function, **given):
            result = train.DataParallelTrainer(function, **given).fit()
            print(f"ran={os.path.basename(result.path)} {result.return_value}")

        fit(first)
        fit(first, run_config=train.RunConfig(name=f"named_{len(sys.argv)}", resume=True))
        for number in range(3):
            fit(second, train_loop_config={"number": number})
    """
    script = scripts.start(source)
    assert script.finish() == 1, script.output
    before = runs_of(scripts.storage)
    (run,) = (path for path in before if record(path)["status"] == "failed")
    again = resumed(scripts, run)
    assert again.code == 0, again.output
    ran = [line.removeprefix("ran=").split() for line in again.output.splitlines() if line.startswith("ran=")]
    assert [value for _, value in ran] == ["None", "None", "anew", "1", "anew"]
    assert [name == run.name for name, _ in ran] == [False, False, False, True, False]
    # The others were started again, under names of their own.
    assert len(runs_of(scripts.storage)) == len(before) + 3


def test_a_run_that_the_script_names_goes_on_by_its_name(scripts: Scripts) -> None:
    source = SCRIPT.replace("train_loop_config=", "run_config=train.RunConfig(name='mine'), train_loop_config=")
    run = failed(scripts, sys.executable, str(scripts.write(source)))
    assert record(run)["asked"]["made_up_name"] is None
    again = resumed(scripts, "mine")
    went_on(again, run)
    assert "warning" not in again.output


def test_a_script_that_goes_on_with_something_else_says_so(scripts: Scripts) -> None:
    script = scripts.write(SCRIPT)
    run = failed(scripts, sys.executable, str(script))
    scripts.write(SCRIPT.replace("loop(", "other(").replace("(loop,", "(other,"))
    again = resumed(scripts, run)
    assert again.code == 7, again.output
    assert f"carril: warning: the command was run again for `{run}`, and did not go on with it\nhint: " in again.output
    assert record(run)["status"] == "failed" and len(runs_of(scripts.storage)) == 2


def test_it_runs_under_as_ray_again_with_the_same_options(scripts: Scripts) -> None:
    source = SCRIPT.replace("from carril import train", "import ray; from ray import train")
    # Ray has the class elsewhere.
    imported = "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer"
    source = source.replace("def loop", f"{imported}\n\n    def loop", 1).replace("train.Data", "Data")
    source = source.replace("result =", "ray.init(); print(f'cpus={ray.cluster_resources()[\"CPU\"]}'); result =")
    command = (CARRIL, "as-ray", "--num-cpus", "3", "--resource", "widgets=2", "--", sys.executable)
    storage = scripts.directory / "ray_results"
    run = failed(scripts, *command, str(scripts.write(source)), storage=storage)
    assert record(run)["asked"]["as_ray"] == ["--num-cpus=3", "--resource=widgets=2"]
    shown = resumed(scripts, run.name, "--dry-run").output
    assert f"{CARRIL} as-ray --num-cpus=3 --resource=widgets=2 -- {sys.executable} " in shown
    again = resumed(scripts, run.name)
    went_on(again, run)
    assert values(again.output)["cpus"] == "3.0"


def test_ctrl_c_goes_to_the_command(scripts: Scripts) -> None:
    source = """
        import os, time
        from carril import train

        def loop():
            if not os.path.exists("go"):
                raise RuntimeError("on purpose")
            print("waits", flush=True)
            while True:
                time.sleep(0.01)

        train.DataParallelTrainer(loop).fit()
    """
    run = failed(scripts, sys.executable, str(scripts.write(source)))
    (scripts.directory / "go").touch()
    script = scripts.start_command(CARRIL, "resume", run.name)
    wait_until(lambda: "waits" in script.output, "the function", lambda: script.output)
    script.send(signal.SIGINT)
    assert script.finish() == -signal.SIGINT and "KeyboardInterrupt" in script.output
    assert record(run)["status"] == "aborted"


def test_a_dry_run_prints_a_line_for_a_shell_and_runs_nothing(scripts: Scripts) -> None:
    directory = scripts.directory / "it's here"
    scripts.write(SCRIPT, "it's here/train.py")
    run = failed(scripts, sys.executable, "train.py", "a b", "$HOME", cwd=directory)
    before = record(run)
    shown = resumed(scripts, run.name, "--dry-run")
    assert shown.code == 0 and record(run) == before
    assert shown.output.startswith(f"cd '{scripts.directory}/it'\\''s here' && CARRIL_RESUME={run} {sys.executable} ")
    (directory / "go").touch()
    script = scripts.start_command("sh", "-c", shown.output)
    again = Ended(script.finish(), script.output)
    went_on(again, run)
    assert values(again.output)["arguments"] == "['a b', '$HOME']"


def test_what_has_finished_is_refused_with_the_ways_out(scripts: Scripts) -> None:
    run = failed(scripts, sys.executable, str(scripts.write(SCRIPT)))
    went_on(resumed(scripts, run), run)
    assert refused(scripts, run.name) == (
        f"error: `{run.name}` has finished, in `{run}`\n"
        "hint: to go on from its last checkpoint, set RunConfig(resume=True) in its script\n"
        f'hint: or in Python: `DataParallelTrainer.restore("{run}").fit()`\n'
    )
    assert refused(scripts, "no-such-run").startswith(
        "error: there is no run, experiment or trial `no-such-run`\nhint: "
    )


def test_what_is_gone_is_named(scripts: Scripts) -> None:
    import socket

    directory = scripts.directory / "work"
    script = scripts.write(SCRIPT, "work/train.py")
    python = scripts.directory / "python"
    python.symlink_to(sys.executable)
    run = failed(scripts, str(python), "train.py", cwd=directory, PYTHONPATH=os.pathsep.join(sys.path))

    def told(what: str, path: Path) -> None:
        assert refused(scripts, run) == (
            f"error: {what} of `{run.name}` is not here: `{path}`\n"
            f"hint: it was started on the host {socket.gethostname()}\n"
            f'hint: without it, in Python: `DataParallelTrainer.restore("{run}").fit()`\n'
        )

    script.rename(directory / "moved.py")
    told("the script", script)
    (directory / "moved.py").rename(script)
    python.rename(scripts.directory / "moved")
    told("the Python interpreter", Path(record(run)["asked"]["python"]))
    (scripts.directory / "moved").rename(python)
    directory.rename(scripts.directory / "moved")
    told("the directory", directory)


def test_a_script_on_standard_input_is_refused_with_the_ways_out(scripts: Scripts) -> None:
    source = SCRIPT.replace("os.path.dirname(os.path.abspath(__file__))", repr(str(scripts.directory)))
    run = failed(scripts, "sh", "-c", f"'{sys.executable}' - a < '{scripts.write(source)}'")
    assert refused(scripts, run) == (
        f"error: `{run.name}` was started from a script on standard input, which cannot be run again\n"
        f'hint: run it again with RunConfig(name="{run.name}")\n'
        f'hint: or in Python: `DataParallelTrainer.restore("{run}").fit()`\n'
    )
    # What the hint says.
    scripts.write("import sys; from carril import train; print(train.DataParallelTrainer.restore(sys.argv[1]).fit())")
    restored = scripts.start_command(sys.executable, "script.py", str(run))
    assert restored.finish() == 0 and "return_value=(2, False)" in restored.output


def test_a_notebook_is_refused_with_the_ways_out(scripts: Scripts) -> None:
    notebook = Notebook(scripts)
    try:
        shown = notebook.run(
            """
            from carril import train

            def loop():
                raise RuntimeError("on purpose")

            try:
                train.DataParallelTrainer(loop).fit()
            except train.WorkerGroupError as error:
                print("caught", error)
            """
        )
    finally:
        notebook.close()
    assert "caught rank 0 failed: RuntimeError: on purpose" in shown["text"]
    (run,) = runs_of(scripts.storage)
    assert refused(scripts, run) == (
        f"error: `{run.name}` was started from a notebook, which cannot be run again\n"
        f'hint: run it again with RunConfig(name="{run.name}")\n'
        f'hint: or in Python: `DataParallelTrainer.restore("{run}").fit()`\n'
    )


@pytest.mark.parametrize(
    ("started", "how"),
    [
        ("prompt", "at a prompt of Python"),
        ("child", "by a process of multiprocessing"),
        ("embedded", "by a program with Python inside"),
    ],
)
def test_other_ways_to_start_that_cannot_be_run_again_are_refused(scripts: Scripts, started: str, how: str) -> None:
    run = scripts.storage / "run"
    run.mkdir(parents=True)
    owner = {"host": "elsewhere", "boot": "", "pid": 1, "start": 1}
    asked = {"trainer": "TorchTrainer", "python": "", "command_line": [], "started_as": started, "directory": "/"}
    content = {"name": "run", "run_id": "0123456789abcdef", "status": "failed", "started": 1.0}
    (run / "run.json").write_text(json.dumps({**content, "carril_version": "0", "owner": owner, "asked": asked}))
    output = refused(scripts, "run")
    assert output.startswith(f"error: `run` was started {how}, which cannot be run again\nhint: ")
    assert f'hint: or in Python: `TorchTrainer.restore("{run}").fit()`' in output


def started_as(*command: str, stdin: str = "", **more: Any) -> str:
    """What a driver that is started like this would record."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, **more)
    return done.stdout.strip()


def test_how_a_driver_was_started_is_told_from_its_command_line(tmp_path: Path) -> None:
    shows = "from carril._internal.again import how_started; print(how_started()['started_as'])"
    python = sys.executable
    (tmp_path / "shows.py").write_text(shows)
    (tmp_path / "spawns.py").write_text(
        "import multiprocessing\n"
        "def shows():\n    exec(" + repr(shows) + ")\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=shows)\n"
        "    child.start()\n    child.join()\n"
    )
    assert started_as(python, "-u", "-W", "ignore", "-Xdev", "shows.py", cwd=tmp_path) == "script"
    assert started_as(python, "-um", "shows", "-c", cwd=tmp_path) == "module"
    assert started_as(python, "-Ic", shows, "-m") == "code"
    assert started_as(python, stdin=shows) == "input"
    assert started_as(python, "-", "x", stdin=shows) == "input"
    assert started_as(python, "-i", "-q", stdin=shows) == "prompt"
    assert started_as(python, "spawns.py", cwd=tmp_path) == "child"


def test_a_variable_that_names_no_run_is_an_error(scripts: Scripts) -> None:
    script = scripts.start(SCRIPT, CARRIL_RESUME="/no/such/run")
    assert script.finish() == 1
    assert "`CARRIL_RESUME` is `/no/such/run`: there is no run" in script.output
    assert runs_of(scripts.storage) == []
