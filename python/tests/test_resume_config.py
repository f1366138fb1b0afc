"""A run that resumes says so, and says in what it differs from what was started."""

import json
import os
import re
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture  # noqa: F401
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import lines
from terminals import CTRL_C, Terminals, terminals_fixture  # noqa: F401
from test_notebook import Notebook, notebook_fixture  # noqa: F401

from carril._internal.command import find_command
from carril.exceptions import ConfigError
from carril.train import DataParallelTrainer, RunConfig, ScalingConfig

CARRIL = find_command()

# Four reports with a checkpoint each, then it fails until the file `go` is there.
SOURCE = """
    import os, sys, time
    from carril import train

    def loop(config):
        latest = train.get_checkpoint()
        begin = latest.to_dict()["step"] + 1 if latest else 0
        for step in range(begin, 6):
            if step == 4 and not os.path.exists("go"):
                if os.path.exists("wait"):
                    print("waits", flush=True)
                    time.sleep(1000)
                raise RuntimeError("on purpose")
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))

    train.DataParallelTrainer(
        loop,
        train_loop_config={"lr": float(os.environ.get("LR", "0.1")), "layers": [8, 8]},
        scaling_config=train.ScalingConfig(num_workers=int(os.environ.get("WORKERS", "1"))),
        run_config=train.RunConfig(name="chg"),
    ).fit()
"""

SAYS = "resuming `chg` after report 4 from checkpoint_000003"
DIFFERS = "`lr` was 0.1 and is 0.2"


def failed_once(scripts: Scripts) -> None:
    script = scripts.start(SOURCE)
    assert script.finish() == 1, script.output
    assert "resuming" not in script.output
    assert re.search(r"carril resume chg\n", script.output), script.output
    (scripts.directory / "go").touch()


def test_a_run_that_resumes_says_so_in_plain_lines(scripts: Scripts) -> None:
    failed_once(scripts)
    script = scripts.start(SOURCE)
    assert script.finish() == 0, script.output
    assert script.output.count(f"carril: {SAYS}\n") == 1, script.output
    assert "another config" not in script.output


def test_a_run_that_resumes_says_so_on_a_terminal(scripts: Scripts, terminals: Terminals) -> None:
    failed_once(scripts)
    terminal = terminals.start(SOURCE)
    assert terminal.finish() == 0, terminal.everything
    assert terminal.everything.count(SAYS) == 1, terminal.everything


def test_a_run_that_resumes_says_so_in_a_notebook(scripts: Scripts, notebook: Notebook) -> None:
    failed_once(scripts)
    shown = notebook.run(textwrap.dedent(SOURCE))
    assert SAYS in shown["text"], shown["text"]


def test_a_restart_within_a_run_says_from_where(scripts: Scripts) -> None:
    script = scripts.start(
        SOURCE.replace('name="chg"', 'name="chg", failure_config=train.FailureConfig(max_failures=1)').replace(
            'raise RuntimeError("on purpose")', 'open("go", "w").close(); raise RuntimeError("on purpose")'
        )
    )
    assert script.finish() == 0, script.output
    assert re.search(rf"restart 1: .*\n(.*\n)*carril: {re.escape(SAYS)}\n", script.output), script.output


def test_a_run_without_a_checkpoint_says_that_it_starts_over(scripts: Scripts) -> None:
    source = """
        import os
        from carril import train
        def loop(config):
            train.report({"loss": 1.0})
            assert os.path.exists("go")
        config = {"lr": float(os.environ.get("LR", "0.1"))}
        train.DataParallelTrainer(loop, train_loop_config=config, run_config=train.RunConfig(name="chg")).fit()
    """
    assert scripts.start(source).finish() == 1
    (scripts.directory / "go").touch()
    script = scripts.start(source, LR="0.2")
    assert script.finish() == 0, script.output
    assert "carril: starting `chg` over: no checkpoint was saved\n" in script.output
    assert DIFFERS in script.output


def test_after_ctrl_c_it_is_said_what_to_type(scripts: Scripts, terminals: Terminals) -> None:
    (scripts.directory / "wait").touch()
    terminal = terminals.start(SOURCE)
    terminal.wait_for("waits")
    terminal.type(CTRL_C)
    assert terminal.finish() != 0
    assert re.search(r"next +carril resume chg\b", terminal.everything), terminal.everything
    (scripts.directory / "go").touch()
    script = scripts.start_command(CARRIL, "resume", "chg")
    assert script.finish() == 0, script.output
    assert SAYS in script.output


def test_another_config_is_refused_with_what_differs_and_both_ways_out(scripts: Scripts) -> None:
    failed_once(scripts)
    before = lines(scripts.storage / "chg" / "result.json")
    script = scripts.start(SOURCE, LR="0.2", WORKERS="2")
    assert script.finish() == 1, script.output
    assert "ConfigError" in script.output and DIFFERS in script.output
    assert "`num_workers` was 1 and is 2" in script.output
    assert "`layers`" not in script.output
    assert "RunConfig(resume=True)" in script.output and "another name" in script.output
    # Nothing was begun: with the config that it had, the run resumes as if nothing had been tried.
    assert lines(scripts.storage / "chg" / "result.json") == before
    script = scripts.start(SOURCE)
    assert script.finish() == 0 and SAYS in script.output, script.output


def test_resume_true_goes_on_with_the_other_config_and_warns(scripts: Scripts) -> None:
    failed_once(scripts)
    script = scripts.start(SOURCE.replace('name="chg"', 'name="chg", resume=True'), LR="0.2")
    assert script.finish() == 0, script.output
    assert SAYS in script.output and DIFFERS in script.output and "warning: " in script.output
    assert json.loads((scripts.storage / "chg" / "params.json").read_text())["lr"] == 0.2


@pytest.mark.parametrize("way", ["as-ray", "resume", "requeue"])
def test_where_nobody_can_answer_another_config_is_a_warning(scripts: Scripts, way: str) -> None:
    if way == "as-ray":
        path = scripts.write(SOURCE, "moved.py")
        command = [CARRIL, "as-ray", "--", sys.executable, str(path)]
        script = scripts.start_command(*command)
        assert script.finish() == 1, script.output
        (scripts.directory / "go").touch()
        script = scripts.start_command(*command, LR="0.2")
    else:
        failed_once(scripts)
        if way == "resume":
            script = scripts.start_command(CARRIL, "resume", "chg", LR="0.2")
        else:
            script = scripts.start(SOURCE, LR="0.2", SLURM_RESTART_COUNT="1")
    assert script.finish() == 0, script.output
    assert SAYS in script.output and DIFFERS in script.output and "warning: " in script.output, script.output


def test_another_number_of_workers_and_other_data_are_told_of(scripts: Scripts) -> None:
    source = SOURCE.replace(
        'run_config=train.RunConfig(name="chg"),',
        'run_config=train.RunConfig(name="chg"), datasets={"rows": list(range(int(os.environ.get("ROWS", "10"))))},',
    )
    script = scripts.start(source)
    assert script.finish() == 1, script.output
    (scripts.directory / "go").touch()
    script = scripts.start(source, WORKERS="2", ROWS="20")
    assert script.finish() == 0, script.output
    assert "`num_workers` was 1 and is 2" in script.output
    assert re.search(r"the data set `rows` was .*10 rows.* and is .*20 rows", script.output), script.output


def _fails(storage: Path, config: dict[str, Any], fail: bool, **run: Any) -> None:
    marker = str(storage / "fails")

    def loop(config: dict[str, Any]) -> None:
        from carril import train

        if train.get_checkpoint() is None:
            train.report({}, checkpoint=train.Checkpoint.from_dict({}))
        if os.path.exists(marker):
            raise RuntimeError("on purpose")

    if fail:
        Path(marker).touch()
    else:
        Path(marker).unlink(missing_ok=True)
    DataParallelTrainer(
        loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(storage_path=storage, verbose=0, **run),
    ).fit()


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just(open)
    | st.binary(max_size=4)
    | st.sets(st.text(max_size=3), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.usefixtures("head")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.dictionaries(st.text(min_size=1, max_size=6), _VALUES, max_size=4))
def test_whatever_a_config_holds_it_is_the_same_as_itself_and_another_one_is_not(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    import copy
    import uuid

    name = f"run-{uuid.uuid4()}"
    config = {**config, "odd": lambda: 1}
    with pytest.raises(Exception, match="on purpose"):
        _fails(tmp_path, config, True, name=name)
    with pytest.raises(ConfigError, match="`an extra key` is new: 1"):
        _fails(tmp_path, {**config, "an extra key": 1}, False, name=name)
    _fails(tmp_path, copy.deepcopy(config), False, name=name)


def test_a_signal_in_a_log_is_followed_by_what_to_type(scripts: Scripts) -> None:
    (scripts.directory / "wait").touch()
    script = scripts.start(SOURCE)
    script.wait_for("waits")
    script.send(signal.SIGINT)
    script.finish()
    assert re.search(r"next +carril resume chg\n", script.output), script.output
