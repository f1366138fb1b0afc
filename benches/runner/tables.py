"""The results on paper: a table for the terminal and for RESULTS.md, and the same as JSON."""

import datetime
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from runner.measures import Bar


@dataclass
class Row:
    """One contender in one measure."""

    contender: str
    value: str
    cpu: str
    ratio: str
    note: str = ""


@dataclass
class Section:
    """One measure: its rows, its bars, and the samples they came from."""

    name: str
    title: str
    unit: str
    rows: list[Row] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    samples: Any = None
    failures: list[str] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"))

    @property
    def turns(self) -> int | None:
        """How often our side ran, where contenders ran in turns."""
        ours = self.samples.get("ours") if isinstance(self.samples, dict) else None
        return len(ours) if isinstance(ours, list) else None

    @property
    def passed(self) -> bool:
        return not self.failures and all(bar.passed for bar in self.bars)


def number(value: float, unit: str) -> str:
    """A number with as many digits as mean something."""
    if unit == "s":
        return f"{value:.3f}" if value < 1 else f"{value:.2f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def spread(values: list[float], unit: str) -> str:
    """The median, and the range that it is the middle of."""
    middle = number(median(values), unit)
    return middle if len(values) == 1 else f"{middle} ({number(min(values), unit)} to {number(max(values), unit)})"


def machine() -> dict[str, str]:
    """The facts about this machine that the numbers depend on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": model,
        "memory": f"{int(memory.split()[1]) / 1e6:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def section_lines(section: Section) -> list[str]:
    """A measure as lines of Markdown, which read as well on a terminal."""
    lines = [f"### {section.title}", ""]
    if section.rows:
        header = ["contender", f"median ({section.unit})", "CPU s", "of ours", "note"]
        cells = [[row.contender, row.value, row.cpu, row.ratio, row.note] for row in section.rows]
        lines += [*_columns([header, *cells]), ""]
    if section.bars:
        cells = [[bar.wanted, bar.measured, "pass" if bar.passed else "FAIL"] for bar in section.bars]
        lines += [*_columns([["bar", "measured", ""], *cells]), ""]
    for failure in section.failures:
        first, _, rest = failure.partition("\n")
        lines += [f"failed: {first}", *("    " + line for line in rest.splitlines()), ""]
    return lines


def _from_record(measure: dict[str, Any], date: str) -> Section:
    known = {name: value for name, value in measure.items() if name != "passed"}
    rows, bars = [Row(**row) for row in known.pop("rows")], [Bar(**bar) for bar in known.pop("bars")]
    return Section(**{"date": date, **known}, rows=rows, bars=bars)


def _earlier(directory: Path) -> dict[str, Any]:
    path = directory / "results.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return record


def _with_earlier(earlier: dict[str, Any], sections: list[Section], order: list[str]) -> list[Section]:
    """These measures, and from earlier runs those that this run left out."""
    stored = [_from_record(measure, earlier["date"]) for measure in earlier.get("measures", [])]
    by_name = {section.name: section for section in (*stored, *sections)}
    return sorted(
        by_name.values(), key=lambda section: order.index(section.name) if section.name in order else len(order)
    )


def write(directory: Path, measured: list[Section], versions: dict[str, dict[str, str]], order: list[str]) -> None:
    """Writes `results.json` and `RESULTS.md`. A run of some measures leaves the others as they were."""
    facts = machine()
    earlier = _earlier(directory)
    sections = _with_earlier(earlier, measured, order)
    versions = {**earlier.get("versions", {}), **versions}
    date = max(section.date for section in sections)
    record = {
        "date": date,
        "machine": facts,
        "versions": versions,
        "measures": [asdict(section) | {"passed": section.passed} for section in sections],
    }
    (directory / "results.json").write_text(json.dumps(record, indent=2) + "\n")
    lines = [
        "# Measured beside the rivals",
        "",
        f"Written by `make bench`, last on {date}. {', '.join(f'{name}: {fact}' for name, fact in facts.items())}.",
        "",
        *(
            f"- {who}: {', '.join(f'{name} {version}' for name, version in what.items())}"
            for who, what in versions.items()
        ),
        "",
        "Contenders run in turns, as many as each table says; the number is the median, with the range in brackets.",
        "CPU seconds are those of every process that the command started, daemons included.",
        "Each environment has compiled bytecode.",
        "",
    ]
    for section in sections:
        title, *rest = section_lines(section)
        turns = "" if section.turns is None else f", in {section.turns} turn{'s' if section.turns > 1 else ''}"
        lines += [title, "", f"Measured on {section.date}{turns}.", *rest]
    (directory / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n")
