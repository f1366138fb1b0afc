"""The commands that look at runs take experiments and trials too, by name, path or id."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture  # noqa: F401

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
