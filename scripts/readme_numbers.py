"""Writes the six numbers of the README out of benches/results.json, between its two marks; `--check` only compares.

`make bench` calls it after a run, so that the README never has a number that the last bench did not measure.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- numbers: scripts/readme_numbers.py -->", "<!-- end of numbers -->"
# The measure, its words in the README, and the row that stands for Ray there: where it has two, the better one.
SHOWN = (
    ("cold_start", "process start to `fit()` returned, 2 workers, no torch", "ray"),
    ("torch_start", "the same with torch, a process group and one DDP step", "ray"),
    ("recover_worker", "`kill -9` of a worker to the function running again", "ray"),
    ("checkpoint_local", "1 GB checkpoint on a local disk, committed and flushed", "ray, then sync"),
    ("data_shuffled", "shuffled Parquet into 2 workers as torch tensors", "ray"),
    ("tune_trials", "trials of a search, a process each, on 2 CPUs", "ray"),
)


def median(row: dict) -> float:
    return float(re.match(r"[\d,.]+", row["value"]).group().replace(",", ""))


def shown(value: float, unit: str) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f} million {unit}"
    if value >= 1000:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit.replace('s/', '/') if value == 1 else unit}"


def table(results: dict) -> str:
    measures = {measure["name"]: measure for measure in results["measures"]}
    lines = [f"| | Carril | Ray {results['versions']['ray']['ray']} | |", "|---|---:|---:|---:|"]
    for name, words, rival in SHOWN:
        rows = {row["contender"]: row for row in measures[name]["rows"]}
        ours, theirs, unit = median(rows["ours"]), median(rows[rival]), measures[name]["unit"]
        factor = max(ours / theirs, theirs / ours)
        better = (ours > theirs) == unit.endswith("/s")
        times = f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"
        said = f"**{times} times**" if better else f"1/{times}"
        lines.append(f"| {words} | {shown(ours, unit)} | {shown(theirs, unit)} | {said} |")
    machine = results["machine"]
    lines += [
        "",
        f"Medians on {machine['cores']} cores ({machine['processor']}, {machine['memory']}), both systems in turns on the same scripts.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="the numbers of the README, from the last bench")
    parser.add_argument("--check", action="store_true", help="only say whether they are those of the last bench")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"error: README.md has no marks\nhint: `{BEGIN}` and `{END}` go around the table")
    numbers = table(json.loads((ROOT / "benches/results.json").read_text()))
    wanted = f"{before}{BEGIN}\n{numbers}\n{END}{after}"
    if text != wanted and arguments.check:
        sys.exit(
            "error: the numbers of README.md are not those of benches/results.json\nhint: python scripts/readme_numbers.py"
        )
    readme.write_text(wanted)


if __name__ == "__main__":
    main()
