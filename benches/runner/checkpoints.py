"""The measures of checkpoints: large ones, many small files, given away, to a slow store, to S3, with their bars.

What a script says it took counts, not the life of its process. Where a rival gives a weaker promise (Ray flushes nothing
and verifies nothing), the title or the note says so.
"""

from collections.abc import Mapping
from statistics import median

from runner.environments import Environment
from runner.measures import BENCHES, Bar, Contender, Measure, at_least
from runner.processes import Outcome


def _script(environment: Environment, *parts: str) -> list[str]:
    return [environment.python, "-P", str(BENCHES.joinpath(*parts))]


def _seconds(outcome: Outcome) -> float:
    return float(outcome.values["seconds"])


def _medians(outcomes: Mapping[str, list[Outcome]], field: str) -> dict[str, float]:
    """The median of a field of each contender that has it and did not fail."""
    found = {}
    for name, all_of_it in outcomes.items():
        values = [float(one.values[field]) for one in all_of_it if one.failure is None and field in one.values]
        if values:
            found[name] = median(values)
    return found


def _speed(wanted: float, what: str, rival: float | None, ours: float | None) -> list[Bar]:
    """A bar on the speed, as a part of the rival's."""
    if rival is None or ours is None:
        return []
    return [Bar(f"at least {wanted:g} of the speed of {what}", f"{rival / ours:.2f}", rival / ours >= wanted)]


def _local(ours: Environment, ray: Environment | None, size: dict[str, str]) -> Measure:
    contenders = [
        Contender("ours", _script(ours, "checkpoint_local", "ours.py"), size),
        Contender("cp and sync", _script(ours, "checkpoint_local", "copy.py"), size),
    ]
    if ray is not None:
        contenders.append(Contender("ray, then sync", _script(ray, "checkpoint_local", "ray.py"), size))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _medians(outcomes, "seconds")
        return _speed(0.9, "`cp` and `sync`", took.get("cp and sync"), took.get("ours")) + _speed(
            1, "Ray with the same flush", took.get("ray, then sync"), took.get("ours")
        )

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        returned = _medians(outcomes, "returned_s")
        return {name: f"the call returned after {seconds:.2f} s" for name, seconds in returned.items()}

    title = "saving 1 GB to a local disk, SYNC, committed and flushed"
    return Measure("checkpoint_local", title, contenders, judge, value=_seconds, notes=notes)


def _given_away(ours: Environment, size: dict[str, str]) -> Measure:
    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        call = _medians(outcomes, "call_ms").get("ours")
        return [] if call is None else [Bar("the call returns in under 50 ms", f"{call:.1f} ms", call < 50)]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        committed = _medians(outcomes, "commit_s")
        return {name: f"committed after {seconds:.2f} s" for name, seconds in committed.items()}

    return Measure(
        "checkpoint_given_away",
        "`report` of 1 GB in a directory that is given away, the longest of 3 calls",
        [Contender("ours", _script(ours, "checkpoint_given_away", "ours.py"), size)],
        judge,
        value=lambda outcome: float(outcome.values["call_ms"]),
        unit="ms",
        notes=notes,
    )


def _async(ours: Environment, size: dict[str, str]) -> Measure:
    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        call, cpu = _medians(outcomes, "call_ms").get("ours"), _medians(outcomes, "cpu_percent").get("ours")
        if call is None or cpu is None:
            return []
        return [
            Bar("under 50 ms blocked per call", f"{call:.1f} ms", call < 50),
            Bar("the upload takes under 10 % of one core", f"{cpu:.1f} %", cpu < 10),
        ]

    def notes(outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
        uploaded = _medians(outcomes, "upload_s")
        return {name: f"stored after {seconds:.1f} s" for name, seconds in uploaded.items()}

    return Measure(
        "checkpoint_async",
        "ASYNC saving of 1 GB to storage that takes 50 MB/s, the longest of 2 calls",
        [Contender("ours", _script(ours, "checkpoint_async", "ours.py"), size)],
        judge,
        value=lambda outcome: float(outcome.values["call_ms"]),
        unit="ms",
        notes=notes,
    )


def _many_files(ours: Environment, ray: Environment | None, count: dict[str, str]) -> Measure:
    contenders = [Contender("ours", _script(ours, "checkpoint_many_files", "ours.py"), count)]
    if ray is not None:
        contenders.append(Contender("ray", _script(ray, "checkpoint_many_files", "ray.py"), count))

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _medians(outcomes, "seconds")
        return at_least(3, "Ray", took.get("ray"), took.get("ours"))

    title = "10,000 small files in one checkpoint; ours committed and flushed, Ray's copied"
    return Measure("checkpoint_many_files", title, contenders, judge, value=_seconds)


def _s3(ours: Environment, boto3: Environment, size: dict[str, str]) -> Measure:
    contenders = [
        Contender("ours", _script(ours, "checkpoint_s3", "ours.py"), size),
        Contender("ours, given away", _script(ours, "checkpoint_s3", "ours.py"), {**size, "BENCH_GIVE": "1"}),
        Contender("boto3", _script(boto3, "checkpoint_s3", "boto3.py"), size),
    ]

    def judge(outcomes: Mapping[str, list[Outcome]]) -> list[Bar]:
        took = _medians(outcomes, "seconds")
        return _speed(0.8, "boto3's transfer", took.get("boto3"), took.get("ours"))

    title = "saving 1 GB to an S3 server on this host, SYNC, committed"
    return Measure("checkpoint_s3", title, contenders, judge, value=_seconds)


def checkpoint_measures(
    ours: Environment, ray: Environment | None, boto3: Environment | None, quick: bool
) -> list[Measure]:
    """The measures; that of S3 only where boto3's environment was made."""
    size = {"BENCH_BYTES": "200000000" if quick else "1000000000"}
    count = {"BENCH_FILES": "2000" if quick else "10000"}
    measures = [
        _local(ours, ray, size),
        _given_away(ours, size),
        _async(ours, size),
        _many_files(ours, ray, count),
    ]
    return measures if boto3 is None else [*measures, _s3(ours, boto3, size)]
