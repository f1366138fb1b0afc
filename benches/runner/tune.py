"""The measures of searches: trials and results a second, what the head spends on a trial, and going on.

Rates are what a script counted in its own search, and not the life of its process. How good the searches are is
measured in `quality`.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from runner.environments import Environment
from runner.measures import Bar, Contender, Measure, at_least, script
from runner.processes import Outcome

NAMES = ("tune_trials", "tune_reuse", "tune_results", "tune_controller", "tune_restore")
# Ray takes seconds for a trial, and more on a busy machine.
SEARCH_TIMEOUT_S = 600.0
# A cost for each trial that grew with the number of trials would be ten times as high at each further size.
_CONSTANT = 1.5


def _per_second(outcome: Outcome) -> float:
    return float(outcome.values["per_second"])


def _rates(outcomes: Mapping[str, list[Outcome]]) -> dict[str, float]:
    """The median rate of each contender that did not fail."""
    good = {name: [one for one in all_of_it if one.failure is None] for name, all_of_it in outcomes.items()}
    return {name: median(_per_second(one) for one in fine) for name, fine in good.items() if fine}


def _counts(what: str) -> dict[str, str]:
    return {"BENCH_TRIALS": what}


def _trials(ours: Environment, ray: Environment | None, quick: bool) -> Measure:
    contenders = [Contender("ours", script(ours, "tune_trials", "ours.py"), _counts("20" if quick else "200"))]
    if ray is not None:
        contenders.append(Contender("ray", script(ray, "tune_trials", "ray.py"), _counts("4" if quick else "20")))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates = _rates(outcomes)
        return at_least(50, "Ray Tune", rates.get("ours"), rates.get("ray"))

    title = "Tune: trivial trials of 3 reports, 2 CPUs, a process each"
    return Measure("tune_trials", title, contenders, judge, value=_per_second, unit="trials/s")


def _reuse(ours: Environment, optuna: Environment, quick: bool) -> Measure:
    loop = script(optuna, "tune_reuse", "optuna.py")
    many, few = ("200", "50") if quick else ("10000", "1000")
    contenders = [
        Contender("ours", script(ours, "tune_reuse", "ours.py"), _counts(many)),
        Contender("optuna", loop, _counts(many)),
        Contender("optuna, journal", loop, {**_counts(few), "BENCH_JOURNAL": "1"}),
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rate = _rates(outcomes).get("ours")
        return [] if rate is None else [Bar("at least 1,000 trials a second", f"{rate:,.0f}", rate >= 1000)]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        return {
            "ours": "in two processes, with the files of each trial",
            "optuna": "its own loop in the driver, in memory",
            "optuna, journal": f"the same with a journal on disk, {int(few):,} trials",
        }

    title = f"Tune: {int(many):,} trivial trials with `reuse_actors`"
    return Measure("tune_reuse", title, contenders, judge, value=_per_second, unit="trials/s", notes=notes)


def _results(ours: Environment, ray: Environment | None, quick: bool) -> Measure:
    count = {"BENCH_REPORTS": "200" if quick else "5000"}
    command = script(ours, "tune_results", "ours.py")
    contenders = [
        Contender("ours", command, count),
        Contender("ours, ASHA", command, {**count, "BENCH_SCHEDULER": "asha"}),
    ]
    if ray is not None:
        reports = {"BENCH_REPORTS": "3" if quick else "200"}
        contenders.append(Contender("ray", script(ray, "tune_results", "ray.py"), reports))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rate = _rates(outcomes).get("ours")
        if rate is None:
            return []
        return [Bar("over 10,000 results a second, counted in the files", f"{rate:,.0f}", rate > 10_000)]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        starts = "the starts of 16 processes are in it"
        return {"ours": starts, "ours, ASHA": "each report waits for a decision", "ray": starts}

    title = "Tune: results of 5 metrics, 16 trials at once, all loggers on"
    return Measure("tune_results", title, contenders, judge, value=_per_second, unit="results/s", notes=notes)


def _controller(ours: Environment, quick: bool) -> Measure:
    sizes = ["10", "100"] if quick else ["100", "1000", "10000"]

    def medians(outcomes: Mapping[str, list[Outcome]]) -> dict[str, float]:
        fine = [one.values["microseconds"] for one in outcomes["ours"] if one.failure is None]
        return {size: median(one[size] for one in fine) for size in sizes} if fine else {}

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        spent = medians(outcomes)
        if not spent:
            return []
        most = spent[sizes[-1]]
        return [
            Bar(
                f"at {int(sizes[-1]):,} trials at most {_CONSTANT} of that at {int(size):,}",
                f"{most / spent[size]:.2f}",
                most / spent[size] <= _CONSTANT,
            )
            for size in sizes[:-1]
        ]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        spent = medians(outcomes)
        return {"ours": ", ".join(f"{spent[size]:,.0f} µs at {int(size):,}" for size in sizes)} if spent else {}

    return Measure(
        "tune_controller",
        f"Tune: CPU time of the head (and agent) for each of {int(sizes[-1]):,} trials",
        [Contender("ours", script(ours, "tune_controller", "ours.py"), {"BENCH_SIZES": ",".join(sizes)})],
        judge,
        value=lambda outcome: float(outcome.values["microseconds"][sizes[-1]]),
        unit="µs",
        notes=notes,
    )


def _restore(ours: Environment, quick: bool) -> Measure:
    trials = "200" if quick else "10000"
    steps = {"fit_s": "`Tuner.restore(…).fit()`", "results_s": "`Tuner.restore(…).get_results()`"}

    def medians(outcomes: Mapping[str, list[Outcome]]) -> dict[str, float]:
        fine = [one.values for one in outcomes["ours"] if one.failure is None]
        return {step: median(one[step] for one in fine) for step in steps} if fine else {}

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = medians(outcomes)
        return [Bar(f"{steps[step]} under 2 s", f"{took[step]:.2f} s", took[step] < 2.0) for step in took]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        took = medians(outcomes)
        return {"ours": f"{steps['results_s']} {took['results_s']:.2f} s"} if took else {}

    return Measure(
        "tune_restore",
        f"Tune: `Tuner.restore(…).fit()` of {int(trials):,} finished trials, in a new head",
        [Contender("ours", script(ours, "tune_restore", "ours.py"), _counts(trials))],
        judge,
        value=lambda outcome: float(outcome.values["fit_s"]),
        notes=notes,
    )


def tune_measures(ours: Environment, ray: Environment | None, optuna: Environment | None, quick: bool) -> list[Measure]:
    """The measures; that of trials beside Optuna only where its environment was made."""
    measures = [
        _trials(ours, ray, quick),
        *([] if optuna is None else [_reuse(ours, optuna, quick)]),
        _results(ours, ray, quick),
        _controller(ours, quick),
        _restore(ours, quick),
    ]
    return [replace(measure, timeout_s=SEARCH_TIMEOUT_S) for measure in measures]
