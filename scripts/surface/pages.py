"""The pages of `docs/reference/ray` for people: one for each package of Ray, one for the names of older generations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from compare import Row, State

_HEAD = "<!-- Written by `make surface`. -->\n"
_STATES = {
    State.SAME: "same",
    State.DIFFERS: "differs",
    State.ABSENT: "absent",
    State.LATER: "later",
}


def package(module: str) -> str:
    """`ray.train` for everything below it."""
    return ".".join(module.split(".")[:2])


def pages(rows: Sequence[Row], older: Sequence[tuple[str, str, str, str]], version: str) -> dict[str, str]:
    """File names with their texts."""
    by_package: dict[str, list[Row]] = {}
    for row in rows:
        by_package.setdefault(package(row.module), []).append(row)
    texts = {f"{name}.md": _page(name, found, version) for name, found in by_package.items()}
    texts["older.md"] = _older(older)
    texts["README.md"] = _overview(by_package, len(older), version)
    return texts


def _overview(by_package: Mapping[str, Sequence[Row]], older: int, version: str) -> str:
    lines = [
        _HEAD,
        "# Ray's names, one by one",
        "",
        f"Every public name of Ray {version} with its parameters, and what `carril as-ray` has of it. A name is public when",
        "a module lists it in `__all__` or Ray annotates it as public API. `make surface` writes these pages from both",
        "packages, and the tests check that carril is what they say.",
        "",
        "- **same**: the same call works. What carril has beyond it does not count.",
        "- **differs**: what differs, and why.",
        "- **absent**: absent on purpose, with what to use instead.",
        "- **later**: not built yet, with what it waits for. Its use raises `NotAvailableError`.",
        "",
        "| | same | differs | absent | later |",
        "|---|---|---|---|---|",
    ]
    for name, rows in sorted(by_package.items()):
        count = Counter(row.state for row in rows)
        cells = " | ".join(str(count[state]) for state in State)
        lines.append(f"| [`{name}`]({name}.md) | {cells} |")
    lines += [
        "",
        f"[{older} names](older.md) are of older generations alone. The tables themselves, one for each generation, are the",
        "JSON files beside this page.",
    ]
    return "\n".join(lines) + "\n"


def _page(name: str, rows: Sequence[Row], version: str) -> str:
    lines = [_HEAD, f"# `{name}`", "", f"As of Ray {version}. [What the words mean](README.md)."]
    module = None
    for row in rows:
        if row.module != module:
            module = row.module
            lines += ["", f"## `{module}`", "", "| name | | |", "|---|---|---|"]
        cell = row.note or _differences(row)
        lines.append(f"| {_code(row.name + row.signature)} | {_STATES[row.state]} | {_escape(cell)} |")
    return "\n".join(lines) + "\n"


def _differences(row: Row) -> str:
    """By reason: several differences often have one."""
    by_reason: dict[str, list[str]] = {}
    for what, why in row.differences.items():
        by_reason.setdefault(why, []).append(what)
    parts = []
    for why, whats in by_reason.items():
        shown = "; ".join(whats[:4]) + (f"; and {len(whats) - 4} more" if len(whats) > 4 else "")
        parts.append(f"{shown}: {why}")
    return "<br>".join(parts)


def _older(older: Sequence[tuple[str, str, str, str]]) -> str:
    lines = [
        _HEAD,
        "# Names of older generations",
        "",
        "Names that Ray had and has no longer, of the versions whose tables are beside this page. [What the words mean](README.md).",
        "",
        "| name | of | | |",
        "|---|---|---|---|",
    ]
    lines += [f"| {_code(path)} | {had} | {state} | {_escape(note)} |" for path, had, state, note in older]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def as_data(rows: Sequence[Row], older: Sequence[tuple[str, str, str, str]]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "names": {
            row.path: {
                "state": row.state.value,
                **({"note": row.note} if row.note else {}),
                **({"differences": row.differences} if row.differences else {}),
            }
            for row in rows
        },
        "older": {
            path: {"of": had, "state": state, **({"note": note} if note else {})} for path, had, state, note in older
        },
    }
