"""Writes the tables of `docs/reference/ray` from the newest Ray and from ours: `make surface`.

    make.py            the newest Ray is installed, and its table written; then everything that follows from the tables
    make.py --older    the tables of the older generations as well, from their packages; each needs the Python it was for
    make.py --offline  Ray is not asked: only what follows from the tables and from ours

Ray is installed in environments outside the clone, in `${CARRIL_CACHE:-~/.cache/carril}/surface-<generation>`. What ours
is, is asked of the carril that is installed for the Python that runs this.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import compare
import generations
import pages

from carril import as_ray
from carril.as_ray import absent

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLES = ROOT / "docs" / "reference" / "ray"
GENERATIONS = ROOT / "python" / "carril" / "as_ray" / "generations.json"
# Each with the Python it ran on and with packages of its time.
OLDER = {
    "1.13": ("3.9", "ray[default,tune,data]==1.13.0", "numpy<1.24", "setuptools<70", "pandas<1.6", "pyarrow<7", "protobuf<4"),
    "2.0": ("3.10", "ray[default,air,tune,data]==2.0.1", "numpy<1.24", "setuptools<70", "pandas<1.6", "pyarrow<7", "protobuf<4"),
    "2.3": ("3.10", "ray[default,air,tune,data]==2.3.1", "numpy<2", "setuptools<70", "pydantic<2", "pandas<2", "pyarrow<12"),
    "2.7": ("3.11", "ray[default,train,tune,data]==2.7.2", "numpy<2", "setuptools<70", "pydantic<2", "pandas<2.2", "pyarrow<14"),
}  # fmt: skip
NEWEST = ("3.11", "ray[default,train,tune,data]")


def uv(*arguments: str) -> None:
    beside = Path(sys.executable).parent / "uv"
    subprocess.run([str(beside) if beside.exists() else "uv", *arguments], check=True)


def cached() -> Path:
    return Path(os.environ.get("CARRIL_CACHE") or Path.home() / ".cache" / "carril")


def environment(name: str, python: str, requirements: tuple[str, ...]) -> str:
    """The Python of an environment that has the requirements in their newest versions."""
    directory = cached() / f"surface-{name}"
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        uv("venv", "--quiet", "--python", python, str(directory))
    interpreter = str(directory / "bin" / "python")
    uv("pip", "install", "--quiet", "--upgrade-package", "ray", "--python", interpreter, *requirements)
    (directory / "complete").touch()
    return interpreter


def extract(python: str, target: Path, path: str | None = None) -> dict[str, Any]:
    """The table of the `ray` that a Python imports. In a directory of its own: nothing of ours is in the way."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
    if path is not None:
        variables["PYTHONPATH"] = path
    with tempfile.TemporaryDirectory() as nowhere:
        command = [python, str(HERE / "extract.py"), str(target)]
        subprocess.run(command, check=True, cwd=nowhere, env=variables, stderr=subprocess.DEVNULL)
    return read(target)


def extract_ours() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(as_ray.__file__).parent / "path"
        return extract(sys.executable, Path(directory) / "ours.json", str(path))


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def tables() -> dict[str, dict[str, Any]]:
    """Of each generation, oldest first."""
    found = {path.stem: read(path) for path in TABLES.glob("[0-9]*.json")}
    return dict(sorted(found.items(), key=lambda one: [int(part) for part in one[0].split(".")]))


def reasons() -> dict[str, str]:
    return dict(tomllib.loads((HERE / "differences.toml").read_text())["reasons"])


def older_names(ours: Mapping[str, Any], had: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """The public names that only older generations had: name, generations, state, note."""
    *before, _ = had["generations"]
    rows = []
    for module, names in had["names"].items():
        for name, bits in names.items():
            if bits >> len(before):
                continue
            versions = ", ".join(one for number, one in enumerate(before) if bits >> number & 1)
            if name in ours["modules"].get(module, {}) or f"{module}.{name}" in ours["paths"]:
                rows.append((f"{module}.{name}", versions, "there", ""))
                continue
            on_purpose, note = absent.find(f"{module}.{name}")
            rows.append((f"{module}.{name}", versions, "absent" if on_purpose else "later", note))
    return rows


def results() -> dict[Path, str]:
    """Every file that follows from the tables and from ours, with its text."""
    every, ours = tables(), extract_ours()
    had = generations.make(every, ours)
    newest = list(every.values())[-1]
    rows = compare.compare(newest, ours, absent, reasons())
    older = older_names(ours, had)
    files = {TABLES / name: text for name, text in pages.pages(rows, older, newest["version"]).items()}
    files[TABLES / "surface.json"] = json.dumps(pages.as_data(rows, older), indent=1, ensure_ascii=False) + "\n"
    files[GENERATIONS] = generations.text(had)
    return files


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--older", action="store_true")
    options.add_argument("--offline", action="store_true")
    given = options.parse_args()
    TABLES.mkdir(parents=True, exist_ok=True)
    if given.older:
        for name, (python, *requirements) in OLDER.items():
            extract(environment(name, python, tuple(requirements)), TABLES / f"{name}.json")
    if not given.offline:
        python, *requirements = NEWEST
        table = TABLES / "newest.json"
        version = extract(environment("newest", python, tuple(requirements)), table)["version"]
        name = ".".join(version.split(".")[:2])
        # One table of today's generation: the one before it was only newer then.
        for former in set(tables()) - set(OLDER) - {name}:
            (TABLES / f"{former}.json").unlink()
        table.rename(TABLES / f"{name}.json")
    for path, text in results().items():
        path.write_text(text)
    unnamed = [
        f"{name}: {what}"
        for name, row in read(TABLES / "surface.json")["names"].items()
        for what, why in row.get("differences", {}).items()
        if not why
    ]
    for one in unnamed:
        print(f"error: no reason for `{one}`", file=sys.stderr)
    if unnamed:
        print("hint: repair it, or name the reason in scripts/surface/differences.toml", file=sys.stderr)
    return 1 if unnamed else 0


if __name__ == "__main__":
    sys.exit(main())
