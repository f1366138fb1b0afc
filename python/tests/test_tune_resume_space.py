"""A search that resumes says so, and says in what it differs from what was started."""

import json
import os
import re
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401
from terminals import Terminals, terminals_fixture  # noqa: F401
from test_notebook import Notebook, notebook_fixture  # noqa: F401

from carril import tune
from carril.exceptions import ConfigError
from carril.train import Checkpoint, RunConfig
from carril.tune import TuneConfig, Tuner
from carril.tune.schedulers import ASHAScheduler
from carril.tune.search import TPESearch
from carril.tune.search.optuna import OptunaSearch

# Trial 0 ends, trial 1 stays at its second report until the file `go` is there; then the search is stopped.
SOURCE = """
    import os, time
    from carril import tune

    # Trials run in directories of their own.
    GO = os.path.abspath("go")

    def train(config):
        latest = tune.get_checkpoint()
        first = latest.to_dict()["step"] + 1 if latest else 0
        for step in range(first, 3):
            while config["x"] == 1 and step == 2 and not os.path.exists(GO):
                time.sleep(0.01)
            tune.report({"loss": 10.0 * config["x"] + 3 - step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))

    tune.Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1, 2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1, time_budget_s=LIMIT),
        run_config=tune.RunConfig(name="again", storage_path=os.getcwd(), resume=True),
    ).fit()
"""
SAYS = "resuming `again`: 1 of 3 trials done, 1 resumes from its checkpoint"


def cut_off(scripts: Scripts) -> str:
    script = scripts.start(SOURCE.replace("LIMIT", "2.0"))
    assert script.finish() == 0, script.output
    assert "resuming" not in script.output
    assert "1 of 3 trials done, 1 unfinished" in script.output, script.output
    (scripts.directory / "go").touch()
    return SOURCE.replace("LIMIT", "None")


def test_a_search_that_resumes_says_so_in_plain_lines(scripts: Scripts) -> None:
    script = scripts.start(cut_off(scripts))
    assert script.finish() == 0, script.output
    assert script.output.count(f"carril: {SAYS}\n") == 1, script.output
    assert "3 of 3 trials done" in script.output


def test_a_search_that_resumes_says_so_on_a_terminal(scripts: Scripts, terminals: Terminals) -> None:
    terminal = terminals.start(cut_off(scripts))
    assert terminal.finish() == 0, terminal.everything
    assert terminal.everything.count(SAYS) == 1, terminal.everything


def test_a_search_that_resumes_says_so_in_a_notebook(scripts: Scripts, notebook: Notebook) -> None:
    shown = notebook.run(textwrap.dedent(cut_off(scripts)))
    assert SAYS in shown["text"], shown["text"]


def test_a_log_has_a_line_soon(scripts: Scripts) -> None:
    script = scripts.start(
        SOURCE.replace("LIMIT", "3.0")
        .replace("2 and not", "2 and beat() and not")
        .replace(
            "    def train", "    def beat():\n        tune.report({'loss': 5.0})\n        return True\n\n    def train"
        )
    )
    assert script.finish() == 0, script.output
    line = r"carril: 1 of 3 trials done · 1 running .*· best: loss 1 · train_\w+_00000 · report 3"
    assert re.search(line, script.output), script.output


def test_what_was_reported_stands_in_the_view_before_a_trial_reports_again(
    scripts: Scripts, terminals: Terminals
) -> None:
    source = SOURCE.replace('10.0 * config["x"] + 3 - step', '3 - step - 10.0 * config["x"]')
    script = scripts.start(source.replace("LIMIT", "2.0"))
    assert script.finish() == 0, script.output
    assert "best        loss -8 " in script.output, script.output
    terminal = terminals.start(source.replace("LIMIT", "None"))
    # Trial 1 waits, and reports nothing.
    terminal.wait_for("1 running")
    assert re.search(r"best: loss -8 · train_\w+_00001 · report 2", terminal.screen), terminal.screen
    (head,) = [process.pid for process in terminal.related() if "private-head" in process.command]
    os.kill(head, signal.SIGKILL)
    terminal.wait_for("resuming `again`", times=2)
    terminal.wait_for("1 running")
    assert re.search(r"best: loss -8 · train_\w+_00001 · report 2", terminal.screen), terminal.screen
    (scripts.directory / "go").touch()
    assert terminal.finish() == 0, terminal.everything


@pytest.mark.usefixtures("head")
class TestAnotherSearch:
    """The same name with another space, or about something else."""

    def start(self, storage: Path, space: dict[str, Any], **options: Any) -> Any:
        """Stops after two trials, wherever `go` is not there."""

        def train(config: dict[str, Any]) -> None:
            if not (storage / "go").exists() and config["x"] not in (0, 1):
                raise RuntimeError("not yet")
            tune.report({"loss": float(config["x"])}, checkpoint=Checkpoint.from_dict({}))

        run = {name: options.pop(name) for name in ("resume", "verbose") if name in options}
        config = {"metric": "loss", "mode": "min", "max_concurrent_trials": 1, **options}
        return Tuner(
            train,
            param_space=space,
            tune_config=TuneConfig(**config),
            run_config=RunConfig(
                name="search",
                storage_path=str(storage),
                failure_config={"fail_fast": not (storage / "go").exists()},
                **{"verbose": 0, **run},
            ),
        )

    def two_of(self, storage: Path, space: dict[str, Any], **options: Any) -> None:
        """Two trials are done, and the search has failed."""
        grid = self.start(storage, space, **options).fit()
        assert grid.num_terminated == 2 and grid.num_errors == 1, list(grid)
        (storage / "go").touch()

    def test_another_space_is_refused_with_what_differs_and_both_ways_out(self, storage: Path) -> None:
        self.two_of(storage, {"x": tune.grid_search([0, 1, 2]), "lr": 0.1})
        before = (storage / "search" / "trials.jsonl").read_bytes()
        with pytest.raises(ConfigError) as refused:
            self.start(storage, {"x": tune.grid_search([1, 3]), "lr": 0.1, "new": tune.uniform(0, 1)}).fit()
        text = str(refused.value)
        assert "the search `search` was started with another `param_space`" in text
        assert "`x` was grid_search([0, 1, 2]) and is grid_search([1, 3])" in text
        assert "`new` is new: uniform(0, 1)" in text and "`lr`" not in text
        assert "`RunConfig(resume=True)` resumes it" in text and "another name, `RunConfig(name=…)`" in text
        assert (storage / "search" / "trials.jsonl").read_bytes() == before

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"mode": "max"}, "`mode` was `min` and is `max`"),
            ({"metric": "other"}, "`metric` was `loss` and is `other`"),
            (
                {"search_alg": TPESearch()},
                "the searcher was `grid and random` and is `tree-structured Parzen estimator`",
            ),
            ({"scheduler": ASHAScheduler()}, "the scheduler was `first in, first out` and is `asynchronous"),
            ({"num_samples": 1}, "`num_samples` was 2 and is 1"),
        ],
    )
    def test_another_aim_is_refused_too(self, storage: Path, options: dict[str, Any], says: str) -> None:
        space = {"x": tune.grid_search([0, 1, 2])} if "search_alg" not in options else {"x": tune.choice([0, 1, 2])}
        if "search_alg" in options:
            space = {"x": tune.randint(2, 3)}
            self.start(storage, space, num_samples=2).fit()
            (storage / "go").touch()
        else:
            self.two_of(storage, space, num_samples=2)
        with pytest.raises(ConfigError, match=re.escape(says)):
            self.start(storage, space, **{"num_samples": 2, **options}).fit()

    @pytest.mark.parametrize("restores", [False, True])
    def test_what_was_tried_is_not_tried_again_and_all_else_is(
        self, storage: Path, restores: bool, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.two_of(storage, {"x": tune.grid_search([0, 1, 2])})
        space = {"x": tune.grid_search([-1, 1, 5, 0, 7])}
        tuner = self.start(storage, space, resume=True, verbose=1)
        if restores:
            given = {"param_space": space, "run_config": RunConfig(verbose=1)}
            tuner = Tuner.restore(storage / "search", tuner._plan.trainable, **given)
        capfd.readouterr()
        grid = tuner.fit()
        shown = capfd.readouterr().out
        assert "warning: the search resumes with another `param_space`: `x` was grid_search([0, 1, 2])" in shown
        assert "resuming `search`: 3 of 6 trials done" in shown
        assert "6 of 6 trials done" in shown, shown
        assert [result.config["x"] for result in grid] == [0, 1, 2, -1, 5, 7]
        # The next start knows which trials came from where.
        again = self.start(storage, {"x": tune.grid_search([-1, 1, 5, 0, 7])}, resume=True, num_samples=2).fit()
        assert sorted(result.config["x"] for result in again) == sorted([0, 1, 2, -1, 5, 7, -1, 1, 5, 0, 7])

    def test_more_samples_are_an_ordinary_continuation(self, storage: Path) -> None:
        self.two_of(storage, {"x": tune.grid_search([0, 1, 2])})
        grid = self.start(storage, {"x": tune.grid_search([0, 1, 2])}, num_samples=2).fit()
        assert [result.config["x"] for result in grid] == [0, 1, 2, 0, 1, 2]

    def test_a_searcher_in_the_driver_suggests_from_the_new_space(self, storage: Path) -> None:
        pytest.importorskip("optuna")
        (storage / "go").touch()
        options = {"num_samples": 3, "search_alg": OptunaSearch(seed=1)}
        self.start(storage, {"x": tune.uniform(0, 1)}, **options).fit()
        options = {"num_samples": 6, "search_alg": OptunaSearch(seed=1), "resume": True}
        grid = self.start(storage, {"x": tune.uniform(10, 11)}, **options).fit()
        values = [result.config["x"] for result in grid]
        assert len(values) == 6
        assert all(0 <= value <= 1 for value in values[:3]) and all(10 <= value <= 11 for value in values[3:]), values

    def test_the_record_has_the_space_in_words(self, storage: Path) -> None:
        (storage / "go").touch()
        space = {"x": tune.randint(0, 9), "model": {"width": tune.choice([8, "wide"])}, "many": list(range(10_000))}
        self.start(storage, space).fit()
        record = json.loads((storage / "search" / "experiment.json").read_text())
        assert record["space"]["x"] == "randint(0, 9)" and record["space"]["model/width"] == 'choice([8, "wide"])'
        assert len(record["space"]["many"]) < 600
