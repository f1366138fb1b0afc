"""The measures of data: rows a second from files to batches, how long training waits for them, and whether any of it grows.

Rates are what a script counted between its own two looks at the clock, after a first pass that is not counted. All contenders
read the same files, which are made once (`make_data`) and kept where the environments are.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from runner.environments import Environment, EnvironmentProblem, cache
from runner.measures import Bar, Contender, Measure, at_least, script
from runner.processes import Outcome

NAMES = (
    "data_parquet",
    "data_shuffled",
    "data_map",
    "data_csv",
    "data_images",
    "data_first_batch",
    "data_resume",
    "data_flat",
)
# Ray takes a minute for some of them, and more on a busy machine.
DATA_TIMEOUT_S = 900.0
# What counts as flat, or as the same for both.
_FLAT = 1.25
_LOADERS = (0, 1, 2, 3, 4)


@dataclass
class Files:
    """Files of one kind that are there, `each` rows in a file."""

    directory: Path
    each: int

    def environment(self, files: int, **more: str) -> dict[str, str]:
        """What a script needs to read the first so many of them."""
        rows = str(files * self.each)
        return {"BENCH_DATA": str(self.directory), "BENCH_FILES": str(files), "BENCH_ROWS": rows, **more}


def _files(rivals: Environment, kind: str, files: int, each: int) -> Files:
    directory = cache() / "bench-data" / f"{kind}-{each}"
    maker = Path(__file__).resolve().parent / "make_data.py"
    command = [rivals.python, str(maker), str(directory), kind, str(files), str(each)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentProblem(f"the files in `{directory}` could not be made:\n{done.stdout[-2000:]}")
    return Files(directory, each)


def _per_second(outcome: Outcome) -> float:
    return float(outcome.values["per_second"])


def _medians(outcomes: Mapping[str, list[Outcome]], value: Callable[[Outcome], float]) -> dict[str, float]:
    good = {name: [one for one in all_of_it if one.failure is None] for name, all_of_it in outcomes.items()}
    return {name: median(value(one) for one in fine) for name, fine in good.items() if fine}


def _part(wanted: float, what: str, ours: float | None, other: float | None) -> list[Bar]:
    """A bar `ours / other >= wanted`, for rates; none where a side was not measured."""
    if ours is None or other is None:
        return []
    return [Bar(f"at least {wanted:g} of {what}", f"{ours / other:.2f}", ours / other >= wanted)]


def _within(wanted: float, what: str, value: float) -> Bar:
    return Bar(f"at most {wanted:g} of {what}", f"{value:.2f}", value <= wanted)


@dataclass
class _Makers:
    """What every measure is made of."""

    ours: Environment
    rivals: Environment
    with_ray: bool
    quick: bool

    def pair(self, name: str, environment: dict[str, str], passes: str) -> list[Contender]:
        """Ours and Ray's on the same files; ours is quick enough for several passes."""
        made = [Contender("ours", script(self.ours, name, "ours.py"), {**environment, "BENCH_PASSES": passes})]
        if self.with_ray:
            made.append(Contender("ray", script(self.rivals, name, "ray.py"), environment))
        return made

    def rival(self, name: str, measure: str, file: str, environment: dict[str, str], **more: str) -> Contender:
        return Contender(name, script(self.rivals, measure, file), {**environment, **more})

    def parquet(self, millions: int) -> tuple[Files, int]:
        """So many million rows, in files of a quarter of a million; a thousandth of it to see that it works."""
        files = 4 * millions
        return _files(self.rivals, "parquet", files, 2_500 if self.quick else 250_000), files


def _parquet(makers: _Makers) -> Measure:
    made, files = makers.parquet(4)
    environment = made.environment(files)
    contenders = [
        *makers.pair("data_parquet", environment, "3"),
        makers.rival("pyarrow, bare scan", "data_parquet", "pyarrow.py", environment, BENCH_PASSES="3"),
        makers.rival("pyarrow, to numpy", "data_parquet", "pyarrow.py", environment, BENCH_PASSES="3", BENCH_NUMPY="1"),
        makers.rival("torch DataLoader, 2 processes", "data_parquet", "dataloader.py", environment),
        makers.rival("Hugging Face datasets", "data_parquet", "huggingface.py", environment),
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates = _medians(outcomes, _per_second)
        return at_least(10, "Ray Data", rates.get("ours"), rates.get("ray")) + _part(
            0.9, "pyarrow's bare scan", rates.get("ours"), rates.get("pyarrow, bare scan")
        )

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        return {
            "pyarrow, bare scan": "its own batches, which nobody looks at",
            "torch DataLoader, 2 processes": "pyarrow in each of them",
            "Hugging Face datasets": "out of Arrow files that it has made before",
        }

    title = f"Data: Parquet to numpy batches of 4,096, {files * made.each:,} rows of 32 floats and a label"
    return Measure("data_parquet", title, contenders, judge, value=_per_second, unit="rows/s", notes=notes)


def _shuffled(makers: _Makers) -> Measure:
    made, files = makers.parquet(4)
    environment = made.environment(files)
    ordered = {**environment, "BENCH_ORDERED": "1"}
    contenders = [
        *makers.pair("data_shuffled", environment, "3"),
        *(
            replace(contender, name=f"{contender.name}, not shuffled")
            for contender in makers.pair("data_shuffled", ordered, "3")
        ),
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates = _medians(outcomes, _per_second)
        return at_least(10, "Ray Data", rates.get("ours"), rates.get("ray")) + _part(
            0.8, "the same without shuffling", rates.get("ours"), rates.get("ours, not shuffled")
        )

    title = f"Data: the same {files * made.each:,} rows as torch tensors, shuffled, split over 2 training workers"
    return Measure("data_shuffled", title, contenders, judge, value=_per_second, unit="rows/s")


def _map(makers: _Makers) -> Measure:
    made, files = makers.parquet(4)

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates = _medians(outcomes, _per_second)
        return at_least(8, "Ray Data", rates.get("ours"), rates.get("ray"))

    title = f"Data: `map_batches` with a numpy function of all columns, {files * made.each:,} rows"
    contenders = makers.pair("data_map", made.environment(files), "3")
    return Measure("data_map", title, contenders, judge, value=_per_second, unit="rows/s")


def _csv(makers: _Makers) -> Measure:
    files = 4
    made = _files(makers.rivals, "csv", files, 2_500 if makers.quick else 250_000)
    environment = made.environment(files)
    contenders = [
        *makers.pair("data_csv", environment, "3"),
        makers.rival("pyarrow", "data_csv", "pyarrow.py", environment, BENCH_PASSES="3", BENCH_NUMPY="1"),
        makers.rival("pyarrow, tables only", "data_csv", "pyarrow.py", environment, BENCH_PASSES="3"),
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates = _medians(outcomes, _per_second)
        return at_least(4, "Ray Data", rates.get("ours"), rates.get("ray")) + _part(
            0.6, "pyarrow", rates.get("ours"), rates.get("pyarrow")
        )

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        return {"pyarrow": "the same batches", "pyarrow, tables only": "without a string made for Python"}

    title = f"Data: CSV to numpy batches of 4,096, {files * made.each:,} rows of 5 floats, 4 integers and 2 strings"
    return Measure("data_csv", title, contenders, judge, value=_per_second, unit="rows/s", notes=notes)


def _images(makers: _Makers) -> Measure:
    count = 100 if makers.quick else 5_000
    made = _files(makers.rivals, "images", count, 1)
    environment = made.environment(count)
    contenders = makers.pair("data_images", environment, "1") + [
        makers.rival(
            f"torch DataLoader, {workers}", "data_images", "dataloader.py", environment, BENCH_WORKERS=str(workers)
        )
        for workers in _LOADERS
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates = _medians(outcomes, _per_second)
        loaders = {name: rate for name, rate in rates.items() if name.startswith("torch")}
        best = max(loaders, key=lambda name: loaders[name], default="")
        return _part(1, f"the best of torch's DataLoader ({best})", rates.get("ours"), loaders.get(best)) + at_least(
            1, "Ray Data", rates.get("ours"), rates.get("ray")
        )

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        return {f"torch DataLoader, {workers}": f"{workers} processes with Pillow" for workers in _LOADERS}

    title = f"Data: {count:,} JPEGs decoded, resized to 224 by 224, normalised, to tensors in batches of 64"
    return Measure("data_images", title, contenders, judge, value=_per_second, unit="pictures/s", notes=notes)


def _first_batch(makers: _Makers) -> Measure:
    made, files = makers.parquet(4)

    def medians(outcomes: Mapping[str, list[Outcome]], what: str) -> dict[str, float]:
        return _medians(outcomes, lambda outcome: float(outcome.values[what]))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        first, gap, step = (medians(outcomes, what) for what in ("first_s", "gap_s", "step_s"))
        bars = []
        for what, waits in (("the first batch", first), ("the gap between epochs", gap)):
            if "ours" in waits and "ray" in waits:
                ratio = waits["ray"] / waits["ours"]
                wanted = f"{what}: at least 10 times shorter than Ray Data's"
                bars.append(Bar(wanted, f"{ratio:.1f} times", ratio >= 10))
        if "ours" in gap:
            told = f"{gap['ours'] * 1000:.1f} ms of {step['ours'] * 1000:.1f} ms"
            bars.append(Bar("the gap between epochs: under one step", told, gap["ours"] < step["ours"]))
        return bars

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        gap, step = medians(outcomes, "gap_s"), medians(outcomes, "step_s")
        return {name: f"between epochs {gap[name] * 1000:,.1f} ms, a step {step[name] * 1000:,.1f} ms" for name in gap}

    return Measure(
        "data_first_batch",
        f"Data: how long training waits for the first shuffled batch of {files * made.each:,} rows",
        makers.pair("data_first_batch", made.environment(files), "1"),
        judge,
        value=lambda outcome: float(outcome.values["first_s"]),
        notes=notes,
    )


def _resume(makers: _Makers) -> Measure:
    command = script(makers.ours, "data_resume", "ours.py")
    made, most = makers.parquet(10)
    _, few = makers.parquet(1)
    contenders = [
        Contender("ours", command, made.environment(most)),
        Contender(f"ours, {few * made.each:,} rows", command, made.environment(few)),
    ]

    def seconds(outcome: Outcome) -> float:
        return float(outcome.values["seconds"])

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _medians(outcomes, seconds)
        bars = [Bar(f"{name}: under 0.1 s", f"{value:.3f} s", value < 0.1) for name, value in took.items()]
        small = took.get(contenders[1].name)
        if "ours" in took and small is not None:
            bars.append(_within(_FLAT, "what it takes with a tenth of the rows", took["ours"] / small))
        return bars

    title = f"Data: a run goes on in the middle of an epoch of {most * made.each:,} rows, to its next batch"
    return Measure("data_resume", title, contenders, judge, value=seconds)


def _flat(makers: _Makers) -> Measure:
    command = script(makers.ours, "data_flat", "ours.py")
    made, most = makers.parquet(16)
    sizes = [makers.parquet(millions)[1] for millions in (1, 4)]
    contenders = [
        Contender("ours", command, made.environment(most)),
        *(Contender(f"ours, {files * made.each:,} rows", command, made.environment(files)) for files in sizes),
    ]

    def peaks(outcomes: Mapping[str, list[Outcome]]) -> dict[str, float]:
        return _medians(outcomes, lambda outcome: float(outcome.values["peak_mb"]))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        rates, memory, least = _medians(outcomes, _per_second), peaks(outcomes), contenders[1].name
        if "ours" not in rates or least not in rates:
            return []
        return [
            *_part(1 / _FLAT, "the rate at a sixteenth of the rows", rates["ours"], rates[least]),
            _within(_FLAT, "the memory at a sixteenth of the rows", memory["ours"] / memory[least]),
        ]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        return {name: f"{peak:,.0f} MB at most" for name, peak in peaks(outcomes).items()}

    title = f"Data: shuffled batches of {most * made.each:,} rows, within a budget of 64 MB"
    return Measure("data_flat", title, contenders, judge, value=_per_second, unit="rows/s", notes=notes)


_MEASURES = (_parquet, _shuffled, _map, _csv, _images, _first_batch, _resume, _flat)


def data_measures(
    ours: Environment, rivals: Environment, with_ray: bool, quick: bool, wanted: list[str]
) -> list[Measure]:
    """The measures that are wanted, with their files made."""
    makers = _Makers(ours, rivals, with_ray, quick)
    made = [make(makers) for name, make in zip(NAMES, _MEASURES, strict=True) if name in wanted]
    return [replace(measure, timeout_s=DATA_TIMEOUT_S) for measure in made]
