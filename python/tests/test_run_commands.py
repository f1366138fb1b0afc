"""The commands that look at runs say of one what its files, its `Result` and the closing lines of `fit()` say."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401

from carril._internal.command import find_command

CARRIL = find_command()

# Fails behind its checkpoint, and has nothing more to report when it resumes.
BEHIND = """
    from carril import train

    def loop(config):
        if train.get_checkpoint():
            return
        for step in range(1, 7):
            train.report({"loss": 1 / step}, checkpoint=train.Checkpoint.from_dict({}) if step == 4 else None)
        raise ValueError("on purpose")

    trainer = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(name="behind"),
    )
    try:
        result = trainer.fit()
        print("metrics", result.metrics["training_iteration"], len(result.metrics_dataframe))
    except train.TrainingFailedError:
        pass
"""


def carril(scripts: Scripts, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [CARRIL, *arguments],
        cwd=scripts.directory,
        env=scripts.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def test_a_run_that_resumes_and_reports_nothing_has_one_number_of_reports_everywhere(scripts: Scripts) -> None:
    failed = scripts.start(BEHIND)
    assert failed.finish() == 0, failed.output
    resumed = scripts.start(BEHIND)
    assert resumed.finish() == 0, resumed.output
    assert "resuming `behind` after report 4" in resumed.output, resumed.output
    assert "finished: 6 reports, 1 checkpoint in" in resumed.output, resumed.output
    assert "  loss  0.1667" in resumed.output, "the table of metrics is of the last report\n" + resumed.output
    assert "metrics 6 6" in resumed.output, resumed.output
    assert "6 reports" in carril(scripts, "explain", "behind").splitlines()[0]
    (status,) = map(json.loads, carril(scripts, "status", "behind", "--json").splitlines())
    assert (status["reports"], status["metrics"]["loss"]) == (6, 1 / 6)
    assert "reports      6\n" in carril(scripts, "status", "behind")


# The second one waits for the CPU that the first one has.
STOPPED = """
    import os, time
    import carril
    from carril import tune

    carril.init(num_cpus=1)

    def objective(config):
        tune.report({"loss": 1.0})
        open(f"{config['up']}-{config['x']}", "w").close()
        while True:
            time.sleep(0.01)

    tune.Tuner(
        objective,
        param_space={"x": tune.grid_search([1, 2]), "up": os.path.abspath("up")},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="two", verbose=0),
    ).fit()
"""


def test_what_is_stopped_says_so_once_and_a_trial_that_never_ran_has_no_start(scripts: Scripts) -> None:
    script = scripts.start(STOPPED)
    wait_until((scripts.directory / "up-1").exists, "the first trial to run", lambda: script.output)
    wait_until(
        lambda: '"waits"' in (scripts.storage / "two" / "trials.jsonl").read_text(),
        "the second trial to wait",
        lambda: script.output,
    )
    (waiting,) = map(json.loads, carril(scripts, "status", "two/1", "--json").splitlines())
    assert (waiting["status"], waiting["reports"]) == ("pending", 0)
    assert "waits for 1 other run" in waiting["reason"] and "(s)" not in waiting["reason"]
    assert "started" not in carril(scripts, "status", "two/1")
    stack = json.loads(carril(scripts, "stacks", "two/0", "--json").splitlines()[0])
    assert stack["trial"] is not None and "_00000" in stack["trial"]
    assert "is aborted" in carril(scripts, "stop-run", "two/1")
    carril(scripts, "stop-run", "two/0")
    script.finish()
    told = carril(scripts, "explain", "two/0")
    assert "stopped: stopped" not in told and told.count("requested by `carril stop-run`") >= 1, told
    assert "started  " not in carril(scripts, "status", "two/1"), "it never ran"


def test_a_metric_that_nobody_reported_is_said_before_the_mode_is_asked_for(scripts: Scripts) -> None:
    scripts.start(
        """
        from carril import tune
        tune.Tuner(lambda config: {"loss": 1.0}, run_config=tune.RunConfig(name="one", verbose=0)).fit()
        """
    ).finish()
    told = carril(scripts, "tune", "best", "one", "--metric", "los", code=2)
    assert "has reported `los`" in told and "--mode" not in told
    assert "say so with --mode" in carril(scripts, "tune", "best", "one", "--metric", "loss", code=2)


# Saves three times and keeps one; waits between the second and the third.
WAITS = """
    import os, time
    from carril import train

    def loop(config):
        latest = train.get_checkpoint()
        for step in range(latest.to_dict()["step"] + 1 if latest else 0, 3):
            while step == 2 and not os.path.exists(config["go"]):
                open(config["go"] + f"-wanted-{os.getpid()}", "w").close()
                time.sleep(0.01)
            train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))

    result = train.DataParallelTrainer(
        loop,
        train_loop_config={"go": os.path.abspath("go")},
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(name="waits", checkpoint_config=train.CheckpointConfig(num_to_keep=1)),
    ).fit()
    print("restarts", len(result.restarts))
"""


def record_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def test_a_run_whose_head_was_lost_has_one_start_and_one_story(scripts: Scripts) -> None:
    script, run = scripts.start(WAITS), scripts.storage / "waits"

    def waiting() -> int:
        return len(list(scripts.directory.glob("go-wanted-*")))

    def committed() -> int:
        return sum(path.read_text().count('"CheckpointCommitted: ') for path in (run / "journal").glob("*.log"))

    wait_until(lambda: waiting() == 1 and committed() == 2, "the run waits", lambda: script.output)
    first = record_of(run)
    os.kill(first["owner"]["pid"], signal.SIGKILL)
    wait_until(lambda: waiting() == 2, "the run goes on in another head", lambda: script.output)
    second = record_of(run)
    assert second["owner"]["pid"] != first["owner"]["pid"] and second["started"] == first["started"]
    for command in ("runs", "status"):
        (live,) = map(json.loads, carril(scripts, command, "--json").splitlines())
        assert live["started"] == first["started"], (command, live)
    (scripts.directory / "go").touch()
    assert script.finish() == 0 and "restarts 1" in script.output, script.output
    ended = record_of(run)
    (status,) = map(json.loads, carril(scripts, "status", "waits", "--json").splitlines())
    assert (status["started"], status["ended"]) == (first["started"], ended["ended"])
    explained = carril(scripts, "explain", "waits")
    seconds = re.search(r"finished: 3 reports, 1 of 3 checkpoints kept in ([\d.]+) s", script.output)
    told = re.match(r"waits is finished after ([\d.]+) s: 3 reports, 1 of 3 checkpoints kept\n", explained)
    assert seconds and told, (script.output, explained)
    took = ended["ended"] - ended["started"]
    assert abs(float(told[1]) - took) < 0.1 and abs(float(seconds[1]) - took) < took / 2, (told, seconds, took)
    # The first one is attempt 1, as in the headline of a failure.
    assert "restart 1: " in explained and ", attempt 2\n" in explained and "attempt 1\n" not in explained, explained
    assert "StartGroup: attempt 2, after report 2" in carril(scripts, "explain", "waits", "--all")


def test_a_checkpoint_that_was_saved_as_its_head_was_killed_counts(scripts: Scripts) -> None:
    (scripts.directory / "go").touch()
    script = scripts.start(WAITS)
    assert script.finish() == 0, script.output
    (journal,) = (scripts.storage / "waits" / "journal").glob("*.log")
    lines = journal.read_text().splitlines(keepends=True)
    last = [line for line in lines if '"CheckpointCommitted: ' in line][-1]
    journal.write_text("".join(line for line in lines if line != last))
    assert "1 of 3 checkpoints kept" in carril(scripts, "explain", "waits").splitlines()[0]
    (status,) = map(json.loads, carril(scripts, "status", "waits", "--json").splitlines())
    assert (status["checkpoints"], status["saved"]) == (1, 3), status
    assert "checkpoints  1 of 3 kept\n" in carril(scripts, "status", "waits")
    again = scripts.start(WAITS.replace('name="waits"', 'name="waits", resume=True'))
    assert again.finish() == 0 and "1 of 3 checkpoints kept" in again.output, again.output


def test_a_damaged_record_is_named_and_the_other_files_are_told_of(scripts: Scripts) -> None:
    assert scripts.start(BEHIND).finish() == 0
    record = scripts.storage / "behind" / "run.json"
    for content in ("", "{", '{"name": "behind"}'):
        record.write_text(content)
        for command, said in {
            ("status", "behind"): "behind is damaged\n  reports      6\n  checkpoints  1\n",
            ("explain", "behind"): "behind is damaged: 6 reports, 1 checkpoint\n",
            ("checkpoints", "behind"): "checkpoint_000000",
            ("logs", "behind", "--rank", "0"): "",
        }.items():
            done = subprocess.run(
                [CARRIL, *command], env=scripts.environment(), capture_output=True, text=True, check=False
            )
            assert f"note: `{record}` is damaged" in done.stderr and "resume=True" in done.stderr, (command, done)
            assert said in done.stdout, (command, done.stdout)
        (row,) = map(json.loads, carril(scripts, "runs", "--json").splitlines())
        assert (row["name"], row["status"]) == ("behind", "damaged")
