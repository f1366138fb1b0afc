"""Writes `python/carril/as_ray/generations.json`: which generation of Ray had a module, a name, a parameter.

It goes into the wheel, so it has only what an error of `carril.as_ray` asks for: parameters where ours lacks them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from extract import ROOTS

Table = Mapping[str, Any]


def parameter_names(described: Table) -> list[str]:
    """The names that can be given; nothing for `*` and the like."""
    return [one.partition("=")[0] for one in described.get("parameters", ()) if not one.startswith("*")]


def family(module: str) -> str:
    """Names move between modules, but not far: `CheckpointConfig` of `ray.air` is that of `ray.train`, not of `ray.data`."""
    part = module.partition(".")[2].partition(".")[0]
    return "train" if part in ("air", "tune") else part


def functions(table: Table) -> Iterator[tuple[tuple[str, str], Table]]:
    """Everything that can be called, by its family and the name that Python has for it in an error: `Dataset.map`."""
    for module, names in table["modules"].items():
        for name, described in names.items():
            yield (family(module), name), described
            for member, inside in described.get("members", {}).items():
                yield (family(module), f"{name}.{member}"), inside


def make(tables: Mapping[str, Table], ours: Table) -> dict[str, Any]:
    """From the tables of Ray's generations, oldest first, and ours."""
    modules: dict[str, int] = {}
    names: dict[str, dict[str, int]] = {}
    parameters: dict[str, dict[str, int]] = {}
    ours_has: dict[tuple[str, str], set[str]] = {}
    for key, described in functions(ours):
        ours_has.setdefault(key, set()).update(parameter_names(described))
    for number, table in enumerate(tables.values()):
        for path in table["paths"]:
            modules[path] = modules.get(path, 0) | 1 << number
        for path, described in table["modules"].items():
            for name in described:
                mine = names.setdefault(path, {})
                mine[name] = mine.get(name, 0) | 1 << number
        for key, described in functions(table):
            for parameter in parameter_names(described):
                if key in ours_has and parameter not in ours_has[key]:
                    mine = parameters.setdefault(key[1], {})
                    mine[parameter] = mine.get(parameter, 0) | 1 << number
    near = {path.split(".")[1] for path in modules if path.count(".") > 1}
    whole = sorted({path.split(".")[1] for path in modules if "." in path} - near - set(ROOTS))
    return {
        "generations": list(tables),
        "whole": whole,
        "modules": dict(sorted(modules.items())),
        "names": {path: dict(sorted(found.items())) for path, found in sorted(names.items())},
        "parameters": {name: dict(sorted(found.items())) for name, found in sorted(parameters.items())},
    }


def text(generations: Mapping[str, Any]) -> str:
    """One line for each part of a part."""
    parts = []
    for key, value in generations.items():
        if isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{rows}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
