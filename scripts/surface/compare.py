"""Compares the table of Ray's newest generation with ours, name by name: same, differs, absent on purpose, not built yet.

Pure functions of the two tables, of `carril.as_ray.absent` and of `differences.toml`, which names the reason for each
difference. What ours has beyond Ray's is no difference: a script of Ray's does not notice it.
"""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Table = Mapping[str, Any]


class State(Enum):
    SAME = "same"
    DIFFERS = "differs"
    ABSENT = "absent on purpose"
    LATER = "not built yet"


@dataclass
class Row:
    """A public name of Ray's."""

    module: str
    name: str
    state: State
    signature: str
    # What to use instead, or what it waits for.
    note: str = ""
    # What differs, each with its reason; an empty reason is an error.
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


def compare(theirs: Table, ours: Table, absent: Any, reasons: Mapping[str, str]) -> list[Row]:
    rows = []
    for module, names in theirs["modules"].items():
        for name, described in names.items():
            row = Row(module, name, State.SAME, signature(described))
            mine = _ours(ours, module, name)
            if mine is None or mine["kind"] == "missing":
                on_purpose, row.note = absent.find(row.path)
                row.state = State.ABSENT if on_purpose else State.LATER
            else:
                found = sorted(set(_differences(described, mine)))
                row.differences = {what: _reason(f"{row.path}: {what}", reasons) for what in found}
                row.state = State.DIFFERS if row.differences else State.SAME
            rows.append(row)
    return rows


def signature(described: Table) -> str:
    if "parameters" in described:
        return f"({', '.join(described['parameters'])})"
    return f"= {described['value']}" if "value" in described else ""


def _ours(ours: Table, module: str, name: str) -> Table | None:
    if f"{module}.{name}" in ours["paths"]:
        return {"kind": "module"}
    found: Table | None = ours["modules"].get(module, {}).get(name)
    return found


def _reason(difference: str, reasons: Mapping[str, str]) -> str:
    return next((why for pattern, why in reasons.items() if fnmatch.fnmatchcase(difference, pattern)), "")


def _differences(theirs: Table, mine: Table) -> Iterator[str]:
    if theirs["kind"] == "value" and mine["kind"] == "value" and theirs["value"] != mine["value"]:
        yield f"the value is {mine['value']}"
    yield from _parameters(theirs, mine, "")
    members = mine.get("members", {})
    for name, described in theirs.get("members", {}).items():
        if name not in members:
            yield f"no {described['kind']} `{name}`"
        else:
            yield from _parameters(described, members[name], f"`{name}`: ")


def _parameters(theirs: Table, mine: Table, where: str) -> Iterator[str]:
    """What a call that Ray takes would meet in ours."""
    if "parameters" not in theirs or "parameters" not in mine:
        return
    wanted, given = _split(theirs["parameters"]), _split(mine["parameters"])
    takes_any = any(one.startswith("**") for one in mine["parameters"])
    by_position = _positional(mine["parameters"])
    for name, default in wanted.items():
        if name not in given:
            if not takes_any:
                yield f"{where}no parameter `{name}`"
        elif default is not None and not _is_same_default(default, given[name]):
            mine_is = "has no default" if given[name] is None else f"defaults to {given[name]}"
            yield f"{where}`{name}` {mine_is}, not {default}"
    takes_more = any(one.startswith("*") and one.strip("*") and not one.startswith("**") for one in mine["parameters"])
    for number, name in enumerate(_positional(theirs["parameters"])):
        if name in given and (number >= len(by_position) or by_position[number] != name) and not takes_more:
            yield f"{where}`{name}` is not the argument number {number + 1}"
    for name, default in given.items():
        if default is None and name not in wanted and not any(one.startswith("*") for one in theirs["parameters"]):
            yield f"{where}`{name}` has to be given"


def _is_same_default(theirs: str, mine: str | None) -> bool:
    """A marker for "not given", or what a dataclass makes for each object, stands for whatever the other side writes."""
    return theirs == mine or (mine is not None and ("<" in (theirs[:1], mine[:1]) or theirs == "'DEPRECATED'"))


def _split(parameters: Sequence[str]) -> dict[str, str | None]:
    pairs = (one.partition("=") for one in parameters if not one.startswith("*"))
    return {name: default if equals else None for name, equals, default in pairs}


def _positional(parameters: Sequence[str]) -> list[str]:
    names = []
    for one in parameters:
        if one.startswith("*"):
            break
        names.append(one.partition("=")[0])
    return names
