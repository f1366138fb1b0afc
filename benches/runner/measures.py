"""What is measured, against whom, and the bar for each: the contenders' commands and the judgement of their medians.

A measure that runs commands alternates its contenders, so that a machine that gets slower does so for all. What
counts as CPU seconds is every process that a command started, daemons included (see `processes`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from runner.environments import Environment
from runner.processes import Outcome

BENCHES = Path(__file__).resolve().parent.parent
TIMEOUT_S = 180.0


@dataclass
class Contender:
    """One command of a measure."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Bar:
    """A sentence of the issue as a number: what was wanted, what came out."""

    wanted: str
    measured: str
    passed: bool


@dataclass
class Measure:
    """Commands that run in turns, and what their outcomes must fulfil."""

    name: str
    title: str
    contenders: list[Contender]
    judge: Callable[[Mapping[str, list[Outcome]]], list[Bar]]
    # The number that the table shows for an outcome: its wall seconds, unless the measure is of something else.
    value: Callable[[Outcome], float] = lambda outcome: outcome.wall_s
    unit: str = "s"
    # What the table says beside a contender; it is shown and not judged.
    notes: Callable[[Mapping[str, list[Outcome]]], dict[str, str]] = lambda outcomes: {}
    # A contender that takes longer has failed.
    timeout_s: float = TIMEOUT_S


def _medians(outcomes: Mapping[str, list[Outcome]], value: Callable[[Outcome], float]) -> dict[str, float]:
    """The median of each contender that has an outcome without a failure."""
    found = {}
    for name, all_of_it in outcomes.items():
        good = [value(outcome) for outcome in all_of_it if outcome.failure is None]
        if good:
            found[name] = median(good)
    return found


def at_least(wanted: float, what: str, numerator: float | None, denominator: float | None) -> list[Bar]:
    """A bar `numerator / denominator >= wanted`; none where a side was not measured."""
    if numerator is None or denominator is None:
        return []
    ratio = numerator / denominator
    return [Bar(f"at least {wanted:g} times faster than {what}", f"{ratio:.1f} times", ratio >= wanted)]


def at_most(wanted: float, what: str, numerator: float | None, denominator: float | None) -> list[Bar]:
    """A bar `numerator / denominator <= wanted`; none where a side was not measured."""
    if numerator is None or denominator is None:
        return []
    ratio = numerator / denominator
    return [Bar(f"at most {wanted:g} of {what}", f"{ratio:.2f}", ratio <= wanted)]


def script(environment: Environment, *parts: str) -> list[str]:
    # -P: the scripts lie beside one that is named `ray.py`, which must not be found as `ray`.
    return [environment.python, "-P", str(BENCHES.joinpath(*parts))]


def _cold_start(ours: Environment, ray: Environment | None) -> Measure:
    contenders = [
        Contender("ours", script(ours, "cold_start", "ours.py")),
        Contender("python -c pass", [ours.python, "-c", "pass"]),
    ]
    if ray is not None:
        contenders.append(Contender("ray", script(ray, "cold_start", "ray.py")))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        wall = _medians(outcomes, lambda outcome: outcome.wall_s)
        return at_least(20, "Ray", wall.get("ray"), wall.get("ours")) + at_most(
            15, "`python -c pass`", wall.get("ours"), wall.get("python -c pass")
        )

    return Measure("cold_start", "process start to `fit()` returned, 2 workers, 2 reports, no torch", contenders, judge)


def _torch_start(ours: Environment, ray: Environment | None) -> Measure:
    torchrun = [ours.command("torchrun"), "--standalone", "--nproc-per-node", "2"]
    # The second is what torch loads by itself when the first optimizer is made.
    imports = ("import torch", "import torch, torch._dynamo")
    contenders = [
        Contender("ours", script(ours, "torch_start", "ours.py")),
        *(Contender(line, [ours.python, "-c", line]) for line in imports),
        Contender("torchrun", [*torchrun, str(BENCHES / "torch_start" / "torchrun.py")]),
    ]
    if ray is not None:
        contenders.append(Contender("ray", script(ray, "torch_start", "ray.py")))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        wall = _medians(outcomes, lambda outcome: outcome.wall_s)
        bars = at_least(5, "Ray", wall.get("ray"), wall.get("ours"))
        if "ours" in wall and "import torch" in wall:
            beyond = wall["ours"] - wall["import torch"]
            bars.append(Bar("under 1 s beyond one import of torch", f"{beyond:.2f} s", beyond < 1.0))
        return bars + at_most(1.1, "torchrun", wall.get("ours"), wall.get("torchrun"))

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        wall = _medians(outcomes, lambda outcome: outcome.wall_s)
        return {
            line: f"ours is {wall['ours'] - wall[line]:.2f} s beyond it"
            for line in imports
            if "ours" in wall and line in wall
        }

    title = "the same with torch, a process group and one DDP step"
    return Measure("torch_start", title, contenders, judge, notes=notes)


def _second_fit(ours: Environment, ray: Environment | None) -> Measure:
    contenders = [Contender("ours", script(ours, "second_fit", "ours.py"))]
    if ray is not None:
        contenders.append(Contender("ray", script(ray, "second_fit", "ray.py")))

    def second(outcome: Outcome) -> float:
        return float(outcome.values["second_s"])

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _medians(outcomes, second)
        return at_least(50, "Ray", took.get("ray"), took.get("ours"))

    return Measure("second_fit", "a second `fit()` in one driver", contenders, judge, value=second)


def _report(ours: Environment, ray: Environment | None, quick: bool) -> Measure:
    counts = {"ours": "5000" if quick else "50000", "ray": "5" if quick else "10", "older": "50" if quick else "200"}
    contenders = [Contender("ours", script(ours, "report", "ours.py"), {"BENCH_REPORTS": counts["ours"]})]
    if ray is not None:
        older = script(ray, "report", "ray.py")
        contenders.append(Contender("ray", older, {"BENCH_REPORTS": counts["ray"], "BENCH_RAY_V2": "1"}))
        contenders.append(
            Contender("ray, older generation", older, {"BENCH_REPORTS": counts["older"], "BENCH_RAY_V2": "0"})
        )

    def per_second(outcome: Outcome) -> float:
        return float(outcome.values["per_second"])

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rate = _medians(outcomes, per_second).get("ours")
        caller = _medians(outcomes, lambda outcome: float(outcome.values["median_us"])).get("ours")
        if rate is None or caller is None:
            return []
        return [
            Bar("over 20,000 reports a second in all, counted in the files", f"{rate:,.0f}", rate > 20_000),
            Bar("the caller's median under 20 µs", f"{caller:.1f} µs", caller < 20),
        ]

    title = "`report()` of 5 metrics, 2 workers, CSV and TensorBoard on"
    return Measure("report", title, contenders, judge, value=per_second, unit="reports/s")


def timed_measures(ours: Environment, ray: Environment | None, quick: bool) -> list[Measure]:
    """The measures that run commands in turns."""
    return [_cold_start(ours, ray), _torch_start(ours, ray), _second_fit(ours, ray), _report(ours, ray, quick)]
