"""Runs that are driven by a program in Rust, without Python."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from runner.measures import Bar, Contender, Measure
from runner.processes import Outcome

BINARY = Path(__file__).resolve().parent.parent.parent / "target" / "release" / "examples" / "rust_start"
NAMES = ("rust_start",)
_TIMES_TRUE = 30


def rust_measures() -> list[Measure]:
    """The start of a driver in Rust, up to what its two workers report first."""

    def first(outcome: Outcome) -> float:
        return float(outcome.values["first_report_s"])

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        good = [one for one in outcomes["ours"] if one.failure is None]
        if not good:
            return []
        ratio = median(first(one) / float(one.values["true_s"]) for one in good)
        return [Bar(f"at most {_TIMES_TRUE} times the start of `true`", f"{ratio:.1f} times", ratio <= _TIMES_TRUE)]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        good = [float(one.values["true_s"]) for one in outcomes["ours"] if one.failure is None]
        return {"ours": f"`true` in {median(good) * 1000:.2f} ms"} if good else {}

    title = "start of a driver in Rust to the first report of its 2 workers"
    return [Measure("rust_start", title, [Contender("ours", [str(BINARY)])], judge, value=first, notes=notes)]
