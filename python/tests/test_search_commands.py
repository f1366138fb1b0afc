"""The commands that look at runs take experiments and trials too, by name, path or id."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401

from carril._internal.command import find_command

CARRIL = find_command()

SEARCH = """
    from carril import tune

    def objective(config):
        print("trial with", config["x"], flush=True)
        for step in range(3):
            tune.report({"loss": config["x"] + step})
        if config["x"] == 3:
            raise ValueError("on purpose")

    try:
        tune.Tuner(
            objective,
            param_space={"x": tune.grid_search([1, 2, 3])},
            tune_config=tune.TuneConfig(metric="loss", mode="min"),
            run_config=tune.RunConfig(name="search", verbose=0),
        ).fit()
    except Exception as error:
        print(error)
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


def test_commands_say_something_useful_of_a_search_and_its_trials(scripts: Scripts) -> None:
    script = scripts.start(SEARCH)
    script.finish()
    (experiment,) = json_lines(carril(scripts, "status", "search", "--json"))
    assert experiment["kind"] == "experiment" and experiment["trials"] == 3, script.output
    assert experiment["states"] == {"terminated": 2, "error": 1} and experiment["best"]["value"] == 3.0
    status = carril(scripts, "status", "search")
    assert status.startswith("search is ") and "2 terminated, 1 error (3 in all)" in status
    explained = carril(scripts, "explain", "search")
    assert "ValueError: on purpose" in explained and "best" in explained and len(explained.splitlines()) < 10
    assert json_lines(carril(scripts, "explain", "search", "--json"))[0]["failures"][0]["trials"]
    logs = carril(scripts, "logs", "search")
    assert all(f"trial with {x}" in logs for x in (1, 2, 3))
    assert {line["line"] for line in json_lines(carril(scripts, "logs", "search", "--json"))} >= {"trial with 1"}
    (run,) = json_lines(carril(scripts, "runs", "--json"))
    assert (run["kind"], run["name"]) == ("experiment", "search")
    for command in ("stacks", "stop-run"):
        told = carril(scripts, command, "search", code=2)
        assert "the experiment `search` is not live" in told and "carril explain search" in told
    best = experiment["best"]["trial"]
    for word in (best, f"search/{best}", str(directory_of(scripts, best))):
        (trial,) = json_lines(carril(scripts, "status", word, "--json"))
        assert (trial["kind"], trial["id"], trial["reports"]) == ("trial", best, 3)
        assert "terminated" in carril(scripts, "explain", word)
        assert carril(scripts, "logs", word) == "(rank 0) trial with 1\n"
        assert "is not live: it is terminated" in carril(scripts, "stacks", word, code=2)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def directory_of(scripts: Scripts, trial: str) -> Path:
    (found,) = [path for path in (scripts.storage / "search").iterdir() if trial in path.name and path.is_dir()]
    return found


@pytest.mark.parametrize("command", ["status", "logs", "explain", "stacks", "stop-run"])
def test_what_is_not_there_is_said_with_the_way_out(scripts: Scripts, command: str) -> None:
    assert "there is no run, experiment or trial `nosuch`" in carril(scripts, command, "nosuch", code=2)


# Trials take their turns; each waits for a file, so that a test says when it may end.
SLOW = """
    import os, sys, time
    from carril import tune

    def objective(config):
        first = tune.get_checkpoint().to_dict()["step"] + 1 if tune.get_checkpoint() else 0
        for step in range(first, 3):
            tune.report({"loss": config["x"] + step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))
            if step >= 1:
                open(config["gate"] + ".wanted", "w").close()
            while step >= 1 and not os.path.exists(config["gate"]):
                time.sleep(0.01)
        raise ValueError("on purpose")

    tune.Tuner(
        objective,
        param_space={"x": tune.grid_search([1, 2]), "gate": os.path.abspath("gate")},
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=tune.RunConfig(name="slow", storage_path=sys.argv[1], verbose=0,
                                  failure_config=tune.FailureConfig(max_failures=int(sys.argv[2]))),
    ).fit()
"""


def test_the_story_of_a_search_and_of_a_trial_tells_of_interrupts_losses_and_resumes(scripts: Scripts) -> None:
    storage = scripts.directory / "elsewhere"
    first = scripts.start(SLOW, str(storage), "0")
    wait_until((scripts.directory / "gate.wanted").exists, "two checkpoints", lambda: first.output)
    first.send(signal.SIGINT)
    first.finish()
    shown = carril(scripts, "tune", "show", "slow", "--storage", str(storage))
    assert re.search(r"_00000  unfinished  2 .* interrupted\n", shown), shown
    (scripts.directory / "gate.wanted").unlink()
    second = scripts.start(SLOW, str(storage), "0")
    wait_until((scripts.directory / "gate.wanted").exists, "the trial to resume", lambda: second.output)
    second.send(signal.SIGKILL)
    second.finish()
    wait_until(lambda: not second.related(), "the head to end", lambda: second.related())
    (scripts.directory / "gate").touch()
    scripts.start(SLOW, str(storage), "1").finish()
    told = carril(scripts, "explain", "slow", "--storage", str(storage))
    lines = [re.sub(r"^ +\+[\d.:]+( s)?  |, \d{4}-.*$", "", line) for line in told.splitlines()]
    assert lines[-6:-4] == ["submitted", "stopped: interrupted"], told
    assert lines[-4] == "resumed" and lines[-3].startswith("stopped: the driver") and lines[-2] == "resumed", told
    assert lines[-1] == "finished: every trial has ended", told
    # As long as the closing lines of the last `fit()` say, and not since the first one.
    events = json_lines((storage / "slow" / "trials.jsonl").read_text())
    (resumed, closed) = (max(line["at"] for line in events if line["event"] == kind) for kind in ("resumed", "closed"))
    took = re.match(r"slow is finished after ([\d.]+) s", told)
    assert took and abs(float(took[1]) - (closed - resumed)) < 0.1, told
    # One trial had attempts to spare and the other none: it is one cause, with both of them.
    causes = [line for line in lines if line.startswith("  failed")]
    assert len(causes) == 1 and "_00000, " in causes[0] and "(attempt" not in causes[0], told
    everything = carril(scripts, "explain", "slow", "--all", "--storage", str(storage))
    assert everything.count("_00000 was started again") == 2 and "_00001 failed: ValueError" in everything
    trial = carril(scripts, "explain", "slow/0", "--storage", str(storage))
    stops = trial.index("asked to stop: interrupted"), trial.index("resumed after report 2 from checkpoint_000001")
    assert stops[0] < stops[1] < trial.rindex("failed: rank 0 failed: ValueError: on purpose"), trial
    assert trial.count("asked to stop: the driver has gone") <= 1, trial
    assert "workers on local" not in trial and "worker on local" not in trial, trial
    (json_story,) = json_lines(carril(scripts, "explain", "slow", "--json", "--storage", str(storage)))
    assert [event["event"] for event in json_story["story"]][:3] == ["submitted", "ended", "resumed"]


def test_a_live_search_is_an_experiment_wherever_it_is_kept_and_can_be_resumed(scripts: Scripts) -> None:
    storage = scripts.directory / "else where"
    first = scripts.start(SLOW, str(storage), "0")
    wait_until((scripts.directory / "gate.wanted").exists, "two checkpoints", lambda: first.output)
    (run,) = json_lines(carril(scripts, "runs", "--json"))
    assert (run["kind"], run["name"]) == ("experiment", "slow")
    (listed,) = json_lines(carril(scripts, "tune", "ls", "--json"))
    assert (listed["name"], listed["status"]) == ("slow", "running")
    assert "is live: process" in carril(scripts, "resume", "slow", code=2)
    first.send(signal.SIGINT)
    first.finish()
    path = str(storage / "slow")
    # What is kept elsewhere is named by its path, and as a shell takes it.
    assert f"carril tune show '{path}'" in carril(scripts, "status", path)
    assert f"carril explain '{path}'" in carril(scripts, "stop-run", "slow", "--storage", str(storage), code=2)
    assert "is an experiment" in carril(scripts, "checkpoints", "slow", "--storage", str(storage), code=2)
    assert "checkpoint_000001" in carril(scripts, "checkpoints", "slow/0", "--storage", str(storage))
    of_trial = carril(scripts, "resume", "slow/0", "--storage", str(storage), code=2)
    assert f"`carril resume '{path}'`" in of_trial
    (scripts.directory / "gate").touch()
    told = carril(scripts, "resume", path, "--dry-run")
    assert "script.py" in told and f"CARRIL_RESUME='{path}'" in told
    done = scripts.start_command(CARRIL, "resume", path)
    done.finish()
    assert "slow is finished" in carril(scripts, "status", path), done.output
    assert "resume_errored=True" in carril(scripts, "resume", path, code=2)


def test_a_storage_that_is_not_there_is_an_error(scripts: Scripts) -> None:
    for command in (["runs"], ["tune", "ls"], ["status", "any"]):
        told = carril(scripts, *command, "--storage", "/nonexistent", code=2)
        assert "there is no directory `/nonexistent`" in told


def test_trials_whose_lines_are_lost_are_read_back_from_their_directories(scripts: Scripts) -> None:
    scripts.start(SEARCH).finish()
    lines = scripts.storage / "search" / "trials.jsonl"
    before = carril(scripts, "tune", "show", "search")
    lines.unlink()
    shown = subprocess.run(
        [CARRIL, "tune", "show", "search"], env=scripts.environment(), capture_output=True, text=True, check=True
    )
    assert "has lost 3 trials" in shown.stderr
    columns = [re.findall(r"(\w{5}_\d{5}) +(\w+) +(\d+)", text) for text in (before, shown.stdout)]
    assert columns[0] == columns[1] and len(columns[0]) == 3, shown.stdout
    assert "2 terminated, 1 error" in carril(scripts, "tune", "ls")
    assert not lines.exists(), "whoever looks writes nothing"


def test_trials_of_which_some_lines_are_lost_are_all_shown(scripts: Scripts) -> None:
    scripts.start(SEARCH).finish()
    lines = scripts.storage / "search" / "trials.jsonl"
    before = carril(scripts, "tune", "show", "search")
    left = [line for line in lines.read_text().splitlines(keepends=True) if '"trial": 1' not in line]
    lines.write_text("".join([*reversed(left), '{"trial":99999999999,"event":"started","at":1.0}\n']))
    shown = carril(scripts, "tune", "show", "search")
    columns = [re.findall(r"(\w{5}_\d{5}) +(\w+) +(\d+)", text) for text in (before, shown)]
    assert columns[0] == columns[1] and len(columns[0]) == 3, shown


def test_what_has_finished_is_hinted_at_by_what_became_of_its_trials(scripts: Scripts) -> None:
    scripts.start(SEARCH).finish()
    again = scripts.start(SEARCH)
    again.finish()
    assert "restart_errored=True" in again.output and "the 1 trial again" in again.output, again.output
    assert "resume_errored=True" in carril(scripts, "resume", "search", code=2)
    well = SEARCH.replace("[1, 2, 3]", "[1, 2]").replace('"search"', '"well"')
    scripts.start(well).finish()
    again = scripts.start(well)
    again.finish()
    assert "has finished in" in again.output and "errored" not in again.output, again.output
    told = carril(scripts, "resume", "well", code=2)
    assert "has finished" in told and "failed" not in told and "num_samples" in told, told


# Two trials that stand still. The first dies of the signal by which it is asked for its stacks.
STILL = """
    import os, signal, time
    from carril import tune
    from carril._native import STACK_SIGNAL

    def objective(config):
        if config["x"] == 0:
            signal.signal(STACK_SIGNAL, signal.SIG_DFL)
        tune.report({"loss": 1})
        open(f"{config['notes']}{config['x']}", "w").close()
        while not os.path.exists(f"{config['notes']}.over"):
            time.sleep(0.01)

    tune.Tuner(
        objective,
        param_space={"x": tune.grid_search([0, 1]), "notes": os.path.abspath("trial")},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="still", verbose=0, failure_config=tune.FailureConfig(
            max_failures=0, max_infrastructure_failures=0)),
    ).fit()
"""


def test_a_trial_that_ends_while_it_is_asked_for_its_stacks_does_not_hide_the_others(scripts: Scripts) -> None:
    script = scripts.start(STILL)
    places = [scripts.directory / f"trial{number}" for number in range(2)]
    wait_until(lambda: all(place.exists() for place in places), "both trials", lambda: script.output)
    told = carril(scripts, "stacks", "still")
    assert "_00001_" in told and "in objective" in told and "_00000_" not in told, told
    (scripts.directory / "trial.over").touch()
    script.finish()


SAVES = """
    from carril import tune

    def objective(config):
        for step in range(2):
            saved = tune.Checkpoint.from_dict({"step": step}) if config["x"] < 3 else None
            tune.report({"loss": config["x"] + step}, checkpoint=saved)

    tune.Tuner(
        objective,
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="saves", verbose=0),
    ).fit()
"""


def test_verify_reads_the_checkpoints_of_every_trial_of_a_search(scripts: Scripts) -> None:
    assert scripts.start(SAVES).finish() == 0
    search = scripts.storage / "saves"
    for word in ("saves", str(search)):
        verified = carril(scripts, "verify", word)
        assert verified.count("verified  ") == 4 and len(verified.splitlines()) == 5, verified
        assert verified.splitlines()[-1].startswith("saves: 4 checkpoints of 3 trials verified, "), verified
        assert verified.endswith(", 0 damaged; 1 trial without one\n"), verified
    found = json_lines(carril(scripts, "verify", "saves", "--json"))
    assert [line["verified"] for line in found] == [True] * 4 and len({line["trial"] for line in found}) == 2
    (trial,) = {line["trial"] for line in found if "x=1" in line["checkpoint"]}
    assert carril(scripts, "verify", f"saves/{trial}").count("verified  ") == 2
    damaged = Path(found[0]["checkpoint"])
    (damaged / next(path.name for path in damaged.iterdir() if not path.name.startswith("."))).write_bytes(b"x")
    done = subprocess.run(
        [CARRIL, "verify", "saves"], env=scripts.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and f"damaged   {damaged}  " in done.stdout, done
    assert "saves: 3 checkpoints of 3 trials verified" in done.stdout and "1 damaged" in done.stdout, done.stdout
    scripts.start(SEARCH).finish()
    assert "none of the 3 trials of `search` has a checkpoint" in carril(scripts, "verify", "search", code=2)
