"""A stand-in for the session of a trial: it writes down its calls, and answers with the verdicts that it was given.

Checkpoints are copied as they come, as a real session does.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from carril.train import Checkpoint
from carril.tune.trainable import Trainable, _class_form


class TrialStopped(SystemExit):
    """As the real session raises it out of `tune.report`."""


class Session:
    """Stands for `carril.tune._session`: it keeps every report, and gives the verdicts one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.verdicts: list[str] = []
        self.reports: list[dict[str, Any]] = []
        # What became of each report's checkpoint: a number of the report, and whether it was silent.
        self.saved: list[tuple[int, bool]] = []
        self.latest: Checkpoint | None = None
        self.info = SimpleNamespace(
            id="3f2a1_00000",
            name="train_3f2a1_00000",
            directory=str(directory),
            experiment_name="exp",
            resources={"CPU": 2.0},
            iteration=0,
            time_total_s=0.0,
        )

    def report_trial(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None, *, silent: bool = False
    ) -> str:
        if not silent:
            self.reports.append(metrics)
        if checkpoint is not None:
            self.saved.append((len(self.reports), silent))
            target = self.directory / f"checkpoint_{len(self.saved):06}"
            shutil.copytree(checkpoint.path, target)
            self.latest = Checkpoint.stored(str(target))
        if silent:
            return "continue"
        return self.verdicts.pop(0) if self.verdicts else "continue"

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        if self.report_trial(metrics, checkpoint) in ("pause", "stop"):
            raise TrialStopped

    def values(self, name: str) -> list[Any]:
        return [metrics[name] for metrics in self.reports]


@pytest.fixture(name="session")
def session_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A trial to be in."""
    made = Session(tmp_path)
    module: Any = ModuleType("carril.tune._session")
    module.report_trial, module.TrialStopped = made.report_trial, TrialStopped
    module.latest_checkpoint, module.trial_info = lambda: made.latest, lambda: made.info
    monkeypatch.setitem(sys.modules, "carril.tune._session", module)
    monkeypatch.setattr("carril.tune._session", module, raising=False)
    monkeypatch.setattr("carril.tune.report", made.report, raising=False)
    yield made
    _class_form.release()


class Counting(Trainable):
    """Counts up to `config["until"]`, and writes down what is called."""

    calls: list[str]

    def setup(self, config: dict[str, Any]) -> None:
        self.calls = config.get("calls", [])
        self.calls.append(f"setup {self.trial_id}")
        self.count = 0
        self.until = config.get("until", 3)

    def step(self) -> dict[str, Any]:
        self.count += 1
        if self.count == self.config.get("fails"):
            raise ValueError("of the user")
        return {"count": self.count, "done": self.count >= self.until}

    def cleanup(self) -> None:
        self.calls.append("cleanup")


class Saving(Counting):
    """Keeps its count in a dict."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.calls.append(f"load at {self.iteration}")
        self.count = checkpoint["count"]


class Reused(Saving):
    """Can be had by the next trial."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.calls.append(f"reset {self.trial_id}")
        self.count, self.until = 0, new_config.get("until", 3)
        return not new_config.get("refuses")
