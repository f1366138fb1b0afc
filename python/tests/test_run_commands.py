"""The commands that look at runs say of one what its files, its `Result` and the closing lines of `fit()` say."""

import json
import subprocess

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
