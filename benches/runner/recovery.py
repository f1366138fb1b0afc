"""The measures of recovery: each command makes a fault several times in one run, and gives how long each one took.

The table shows the median of all of them, and beside it the middle and the far end of the distribution (p50, p99).
"""

from collections.abc import Mapping
from statistics import median

from runner.environments import Environment
from runner.measures import Bar, Contender, Measure, at_least, script
from runner.processes import Outcome


def _all(outcomes: list[Outcome]) -> list[float]:
    return sorted(second for one in outcomes if one.failure is None for second in one.values["seconds"])


def _median(outcome: Outcome) -> float:
    return median(outcome.values["seconds"])


def _percentile(values: list[float], percent: float) -> float:
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def _notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
    found = {name: _all(all_of_it) for name, all_of_it in outcomes.items()}
    return {
        name: f"p50 {_percentile(all_of_it, 50):.3f} s, p99 {_percentile(all_of_it, 99):.3f} s of {len(all_of_it)} faults"
        for name, all_of_it in found.items()
        if all_of_it
    }


def _beside_ray(
    name: str, title: str, wanted: float, ours: Environment, ray: Environment | None, variables: dict[str, str]
) -> Measure:
    contenders = [Contender("ours", script(ours, name, "ours.py"), variables)]
    if ray is not None:
        contenders.append(Contender("ray", script(ray, name, "ray.py")))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = {name: median(_all(all_of_it)) for name, all_of_it in outcomes.items() if _all(all_of_it)}
        return at_least(wanted, "Ray", took.get("ray"), took.get("ours"))

    return Measure(name, title, contenders, judge, value=_median, notes=_notes)


def _head(ours: Environment, variables: dict[str, str]) -> Measure:
    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _all(outcomes["ours"])
        return (
            [Bar("under 1 s beyond the zygote's imports", f"{median(took):.2f} s", median(took) < 1.0)] if took else []
        )

    contenders = [Contender("ours", script(ours, "recover_head", "ours.py"), variables)]
    title = "kill -9 of the private head to the function running again on both ranks, no imports"
    return Measure("recover_head", title, contenders, judge, value=_median, notes=_notes)


def _replay(ours: Environment, quick: bool) -> Measure:
    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _all(outcomes["ours"])
        return [Bar("under 1 s", f"{median(took):.2f} s", median(took) < 1.0)] if took else []

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        base = [one.values["one"] for one in outcomes["ours"] if one.failure is None]
        return {"ours": f"with one checkpoint {median(base):.3f} s"} if base else {}

    few = {"BENCH_CHECKPOINTS": "300"} if quick else {}
    contenders = [Contender("ours", script(ours, "replay", "ours.py"), few)]
    title = "`fit()` again to the function running, after 10,000 checkpoints that are all there"
    return Measure("replay", title, contenders, judge, value=_median, notes=notes)


def recovery_measures(ours: Environment, ray: Environment | None, quick: bool) -> list[Measure]:
    few = {"BENCH_KILLS": "3", "BENCH_TIMES": "3"} if quick else {}
    return [
        _beside_ray(
            "recover_worker", "kill -9 of a worker to the function running again on both ranks", 20, ours, ray, few
        ),
        _beside_ray("recover_torch", "the same with torch, to the first DDP step", 5, ours, ray, few),
        _beside_ray("failure", "exception in one rank to `fit()` raising", 10, ours, ray, few),
        _head(ours, few),
        _replay(ours, quick),
    ]
