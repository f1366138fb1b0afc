"""The commands that look at runs say of one what its files, its `Result` and the closing lines of `fit()` say."""

import json
import subprocess

from driver_scripts import Scripts, scripts_fixture  # noqa: F401

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
