"""Measures carril beside Ray, torchrun, `cp`, boto3, Optuna and what reads data, in one run and on the same scripts: `make bench`.

It makes the rivals' environments, lets the contenders of each measure run in turns, judges the medians against the
bars, prints the tables and writes `results.json` and `RESULTS.md` beside itself. Exit code 1 means that a bar was
missed or a run failed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from runner import core as core_bench
from runner import idle, quality, tables
from runner.checkpoints import checkpoint_measures
from runner.collectives import NAMES as COLLECTIVES
from runner.collectives import collective_measures
from runner.data import NAMES as DATA
from runner.data import data_measures
from runner.environments import (
    Environment,
    EnvironmentProblem,
    boto3_environment,
    data_environment,
    optuna_environment,
    our_environment,
    ray_environment,
)
from runner.measures import TIMEOUT_S, Measure, timed_measures
from runner.processes import Outcome, become_subreaper, run
from runner.recovery import recovery_measures
from runner.rust import NAMES as RUST
from runner.rust import rust_measures
from runner.tables import Row, Section
from runner.tune import NAMES as TUNE
from runner.tune import SEARCH_TIMEOUT_S, tune_measures

CHECKPOINTS = tuple(f"checkpoint_{what}" for what in ("local", "given_away", "async", "many_files", "s3"))
RECOVERY = ("recover_worker", "recover_torch", "failure", "recover_head", "replay")
TRAINING = (
    "cold_start",
    "torch_start",
    "second_fit",
    "report",
    *CHECKPOINTS,
    *RECOVERY,
    "memory",
    "threads",
    "core",
    *COLLECTIVES,
    *RUST,
)
NAMES = (*TRAINING, *TUNE, "tune_quality", *DATA)
BESIDE_OPTUNA = {"tune_reuse", "tune_quality"}


def variables(storage: str) -> dict[str, str]:
    """What every contender's environment has: its own storage, and no reporting of usage to anybody."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CARRIL_", "PYTHONPATH"))}
    return {**kept, "BENCH_STORAGE": tempfile.mkdtemp(dir=storage), "RAY_USAGE_STATS_ENABLED": "0"}


def run_in_turns(measure: Measure, repeats: int, storage: str) -> dict[str, list[Outcome]]:
    """Every contender once, and again, `repeats` times."""
    outcomes: dict[str, list[Outcome]] = {contender.name: [] for contender in measure.contenders}
    for turn in range(repeats):
        for contender in measure.contenders:
            outcome = run(contender.command, {**variables(storage), **contender.environment}, measure.timeout_s)
            outcomes[contender.name].append(outcome)
            state = "failed" if outcome.failure else f"{outcome.wall_s:.2f} s"
            print(f"  {measure.name} {turn + 1}/{repeats} {contender.name}: {state}", file=sys.stderr, flush=True)
    return outcomes


def section_of(measure: Measure, outcomes: Mapping[str, list[Outcome]]) -> Section:
    """The table of a measure."""
    section = Section(measure.name, measure.title, measure.unit)
    good = {name: [one for one in all_of_it if one.failure is None] for name, all_of_it in outcomes.items()}
    reference = median([measure.value(one) for one in good["ours"]]) if good.get("ours") else None
    notes = measure.notes(outcomes)
    for name, all_of_it in outcomes.items():
        failed = [one.failure for one in all_of_it if one.failure is not None]
        section.failures += [f"{name}: {failure}" for failure in failed[:1]]
        fine = good[name]
        # What only stands beside a measure has no value of its kind (the older Ray's report rate has).
        note = f"{len(failed)} of {len(all_of_it)} failed" if failed else ""
        if not fine:
            section.rows.append(Row(name, "-", "-", "-", note))
            continue
        values = [measure.value(one) for one in fine]
        left = sorted({process for one in fine for process in one.values.get("left_behind", [])})
        if left:
            note = f"{note} left behind: {', '.join(left)}".strip()
        if "median_us" in fine[0].values:
            note = f"{note} caller's median {median(one.values['median_us'] for one in fine):,.1f} µs".strip()
        note = f"{note} {notes.get(name, '')}".strip()
        ratio = f"{median(values) / reference:.2f}" if reference else "-"
        cpu = tables.spread([one.cpu_s for one in fine], "s")
        section.rows.append(Row(name, tables.spread(values, measure.unit), cpu, ratio, note))
    if not good.get("ours"):
        section.failures.append("ours: nothing to judge")
    else:
        section.bars = measure.judge(outcomes)
    section.samples = {
        name: [{"wall_s": one.wall_s, "cpu_s": one.cpu_s, **one.values} for one in fine] for name, fine in good.items()
    }
    return section


def memory_section(ours: Environment, ray: Environment | None, storage: str) -> Section:
    section = Section("memory", "memory of head and agent, idle after one run", "MB PSS")
    try:
        found, section.bars = idle.memory(ours, ray, lambda: variables(storage), TIMEOUT_S)
    except (RuntimeError, OSError, StopIteration) as error:
        section.failures.append(str(error) or repr(error))
        return section
    reference = found["ours: head and agent"]
    section.samples = found
    section.rows = [Row(who, f"{size:.1f}", "-", f"{size / reference:.1f}") for who, size in sorted(found.items())]
    return section


def threads_section(ours: Environment, storage: str) -> Section:
    section = Section("threads", "threads of our processes, whatever the number of cores", "threads")
    try:
        section.samples, section.bars = idle.threads(ours, lambda: variables(storage), TIMEOUT_S)
    except (RuntimeError, OSError, StopIteration) as error:
        section.failures.append(str(error) or repr(error))
    return section


def core_section(repeats: int) -> Section:
    section = Section("core", "the core with many workers: start, 10 reports each, one failure", "s")
    if not core_bench.BINARY.exists():
        section.failures.append(f"`{core_bench.BINARY}` is not there\nhint: build it with `cargo build --release`")
        return section
    try:
        found, section.bars = core_bench.core(repeats, TIMEOUT_S)
    except Exception as error:  # a bench that fails is a result, not the end of the others
        section.failures.append(str(error))
        return section
    section.samples = found
    section.rows = [
        Row(f"{workers:,} workers", tables.number(one["seconds"], "s"), "-", "-", f"{one['bytes'] / 1e6:.2f} MB")
        for workers, one in found.items()
    ]
    return section


def quality_section(optuna: Environment, storage: str, quick: bool) -> Section:
    seeds = 3 if quick else quality.SEEDS
    minima = "Branin 0.398, Hartmann-6 -3.322, a conditional space of models 0.1"
    title = f"Tune: the best loss after all trials, over {seeds} seeds (what there is to find: {minima})"
    section = Section("tune_quality", title, "loss")
    if not quality.BINARY.exists():
        section.failures.append(f"`{quality.BINARY}` is not there\nhint: `make bench` builds it")
        return section
    try:
        section.samples, trials, section.bars = quality.quality(optuna, variables(storage), seeds, SEARCH_TIMEOUT_S)
    except Exception as error:  # a bench that fails is a result, not the end of the others
        section.failures.append(str(error))
        return section
    for problem, by_search in section.samples.items():
        for search, (value, note) in quality.described(by_search, "{:.4f}".format).items():
            section.rows.append(Row(f"{problem}, {trials[problem]} trials: {search}", value, "-", "-", note))
    return section


def main() -> int:
    parser = argparse.ArgumentParser(description="measures carril beside Ray and torchrun")
    parser.add_argument("--only", action="append", choices=NAMES, help="this measure alone (can be given again)")
    parser.add_argument("--repeats", type=int, default=5, help="how often each contender runs (default 5)")
    parser.add_argument("--quick", action="store_true", help="one turn and fewer reports: to see that it works")
    parser.add_argument("--no-ray", action="store_true", help="without Ray, whose environment is not made either")
    arguments = parser.parse_args()
    wanted = arguments.only or list(NAMES)
    repeats = 1 if arguments.quick else arguments.repeats

    try:
        ours = our_environment()
        ray = None if arguments.no_ray else ray_environment()
        boto3 = boto3_environment() if "checkpoint_s3" in wanted else None
        optuna = optuna_environment() if BESIDE_OPTUNA.intersection(wanted) else None
        readers = data_environment() if set(DATA).intersection(wanted) else None
        with_ray, quick = not arguments.no_ray, arguments.quick
        reading = [] if readers is None else data_measures(ours, readers, with_ray, quick, wanted)
    except EnvironmentProblem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 3
    become_subreaper()
    rivals = {"ray": ray, "boto3": boto3, "optuna": optuna, "data": readers}
    versions = {"ours": ours.versions} | {name: rival.versions for name, rival in rivals.items() if rival}

    sections = []
    with tempfile.TemporaryDirectory(prefix="carril-bench-") as storage:
        timed, saving = timed_measures(ours, ray, quick), checkpoint_measures(ours, ray, boto3, quick)
        recovering, together = recovery_measures(ours, ray, quick), collective_measures(ours, quick)
        for measure in [*timed, *saving, *recovering, *together, *rust_measures()]:
            if measure.name in wanted:
                sections.append(section_of(measure, run_in_turns(measure, repeats, storage)))
        if "memory" in wanted:
            sections.append(memory_section(ours, ray, storage))
        if "threads" in wanted:
            sections.append(threads_section(ours, storage))
        if "core" in wanted:
            sections.append(core_section(repeats))
        # After the others: so many files and directories slow a file system down.
        for measure in tune_measures(ours, ray, optuna, quick):
            if measure.name in wanted:
                sections.append(section_of(measure, run_in_turns(measure, repeats, storage)))
        if optuna is not None and "tune_quality" in wanted:
            sections.append(quality_section(optuna, storage, quick))
        sections += [section_of(measure, run_in_turns(measure, repeats, storage)) for measure in reading]

    for section in sections:
        print("\n".join(tables.section_lines(section)))
    if arguments.quick or arguments.no_ray:
        print("note: a partial run: `results.json` and `RESULTS.md` stay as they are", file=sys.stderr)
    else:
        tables.write(Path(__file__).resolve().parent, sections, versions, list(NAMES))
    missed = [section.name for section in sections if not section.passed]
    if missed:
        print(f"not passed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
