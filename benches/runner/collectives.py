"""The measures of collectives between two workers of one host, beside Gloo, which is started by torchrun."""

from collections.abc import Mapping
from statistics import median

from runner.environments import Environment
from runner.measures import BENCHES, Bar, Contender, Measure, at_least, script
from runner.processes import Outcome

NAMES = ("collective_large", "collective_small", "collective_ddp")


def _microseconds(outcome: Outcome) -> float:
    return float(outcome.values["seconds"]) * 1e6


def _notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
    found = {}
    for name, all_of_it in outcomes.items():
        values = [one.values for one in all_of_it if one.failure is None and "step_s" in one.values]
        if values:
            step, silent, alone = (
                median(one[key] * 1e3 for one in values) for key in ("step_s", "silent_s", "alone_s")
            )
            found[name] = f"step {step:.0f} ms; {silent:.0f} ms sending nothing; {alone:.0f} ms without buckets"
    return found


def _beside_gloo(name: str, title: str, wanted: float, ours: Environment, times: int) -> Measure:
    torchrun = [ours.command("torchrun"), "--standalone", "--nproc-per-node", "2"]
    variables = {"BENCH_TIMES": str(times), "OMP_NUM_THREADS": "1"}
    contenders = [
        Contender("ours", script(ours, name, "ours.py"), variables),
        Contender("gloo", [*torchrun, str(BENCHES / name / "gloo.py")], variables),
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        good = {
            name: [_microseconds(one) for one in all_of_it if one.failure is None]
            for name, all_of_it in outcomes.items()
        }
        took = {name: median(values) for name, values in good.items() if values}
        return at_least(wanted, "Gloo", took.get("gloo"), took.get("ours"))

    return Measure(name, title, contenders, judge, value=_microseconds, unit="µs", notes=_notes)


def collective_measures(ours: Environment, quick: bool) -> list[Measure]:
    few = 10 if quick else 1
    return [
        _beside_gloo("collective_large", "all-reduce of 64 MB of float32, 2 workers of one host", 4, ours, 20),
        _beside_gloo(
            "collective_small", "all-reduce of 4 KB of float32, 2 workers of one host", 5, ours, 20_000 // few
        ),
        _beside_gloo(
            "collective_ddp",
            "communication of a DDP step of 25 million parameters on the CPU, beyond a step that sends nothing, 2 workers of one host",
            3,
            ours,
            10 if quick else 60,
        ),
    ]
