"""Collects the licences of the Rust crates that are inside the wheel into THIRD-PARTY-LICENSES; `--check` only compares.

What is inside is found by `cargo metadata`: the extension and the command with all that they link. The texts are those that the
crates carry; equal texts are written once. It needs no network where the crates were built.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "THIRD-PARTY-LICENSES"
TARGET = "x86_64-unknown-linux-gnu"
# What is installed: see `[[tool.setuptools-rust…]]` in pyproject.toml.
INSTALLED = ("carril-py", "carril-cli")
NAMES = re.compile(r"(UN)?LICEN[CS]E|COPYING|COPYRIGHT|NOTICE", re.IGNORECASE)
# Sources of programs, and what only tests have, carry such names too.
NO_TEXT = {".rs", ".py", ".toml", ".json", ".html", ".c", ".h"}
HEADER = """\
Carril's extension module and command contain the Rust crates below and the Rust standard library (MIT OR Apache-2.0).
Written by scripts/third_party_licences.py.
"""


def metadata() -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--filter-platform", TARGET]
    # Offline first: where a build was made, everything is there.
    done = subprocess.run([*command, "--offline"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def linked(found: dict) -> list[dict]:
    """The crates that the installed ones link, themselves left out: no build scripts, macros or tests."""
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [one for one in found["workspace_members"] if packages[one]["name"] in INSTALLED]
    seen = set(waiting)
    while waiting:
        for edge in nodes[waiting.pop()]["deps"]:
            kinds = {kind["kind"] for kind in edge["dep_kinds"]}
            is_macro = any("proc-macro" in target["kind"] for target in packages[edge["pkg"]]["targets"])
            if None in kinds and not is_macro and edge["pkg"] not in seen:
                seen.add(edge["pkg"])
                waiting.append(edge["pkg"])
    foreign = [packages[one] for one in seen if packages[one]["source"] is not None]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def texts(package: dict) -> list[str]:
    """The licence files of a crate, and of the C libraries and fonts below it."""
    directory = Path(package["manifest_path"]).parent
    paths = [*directory.glob("*"), *directory.glob("*/*"), *directory.glob("assets/*/*")]
    if package["license_file"]:
        paths.append(directory / package["license_file"])
    named = {path for path in paths if NAMES.match(path.name) or path.parent.name == "LICENSES"}
    kept = sorted(path for path in named if path.is_file() and path.suffix.lower() not in NO_TEXT)
    read = [path.read_text(errors="replace") for path in kept]
    # zstd may be used under the GPL or under its BSD licence: it is here under the latter.
    read = [text for text in read if "GNU GENERAL PUBLIC LICENSE" not in text[:400]]
    return ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in read]


def texts_of_siblings(package: dict, crates: list[dict]) -> list[str]:
    """For a crate that carries none: what others of its repository carry, under the same licence."""
    same = [one for one in crates if all(one[key] == package[key] for key in ("repository", "license"))]
    return next((found for found in map(texts, same) if found), [])


def collected() -> str:
    crates = linked(metadata())
    users: dict[str, list[str]] = {}
    lines = [HEADER, "Crates\n"]
    for package in crates:
        name = f"{package['name']} {package['version']}"
        lines.append(f"  {name}: {package['license'] or 'see its text'}")
        for text in texts(package) or texts_of_siblings(package, crates):
            users.setdefault(text, []).append(name)
    # Texts that many crates share come first; the order is the same on every machine.
    for text, names in sorted(users.items(), key=lambda item: (-len(item[1]), item[1], item[0])):
        lines += ["", "=" * 100, ", ".join(dict.fromkeys(names)), "=" * 100, "", text]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="the licences of what the wheel contains")
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    arguments = parser.parse_args()
    wanted = collected()
    if FILE.exists() and FILE.read_text() == wanted:
        return
    if arguments.check:
        sys.exit(f"error: {FILE.name} is not what the wheel contains\nhint: python scripts/third_party_licences.py")
    FILE.write_text(wanted)


if __name__ == "__main__":
    main()
