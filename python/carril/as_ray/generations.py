"""Which generation of Ray had a name, a module or a parameter: read from `generations.json` when an error asks for it.

The file is written by `make surface` from the tables of Ray's packages. In it a number stands for the generations that
had something: the first bit for the oldest.
"""

import functools
import json
import os
from typing import Any


@functools.cache
def _table() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "generations.json"), encoding="utf-8") as file:
        return dict(json.load(file))


def _words(bits: int) -> str:
    """ "Ray 1.13 to 2.3", or "Ray 2.7"."""
    generations = _table()["generations"]
    had = [version for number, version in enumerate(generations) if bits >> number & 1]
    return f"Ray {had[0]}" if len(had) == 1 else f"Ray {had[0]} to {had[-1]}"


def _bits(path: str) -> int:
    table = _table()
    module, _, name = path.rpartition(".")
    bits = table["modules"].get(path, 0) | table["names"].get(module, {}).get(name, 0)
    # Of packages far from ours only the first name is in the table.
    parts = path.split(".")
    if not bits and len(parts) > 2 and parts[1] in table["whole"]:
        bits = table["modules"][".".join(parts[:2])]
    return int(bits)


def of_name(path: str) -> str | None:
    """Which generations had a module or a public name; None where no Ray had it."""
    bits = _bits(path)
    return _words(bits) if bits else None


def is_of_today(path: str) -> bool:
    """Whether the newest generation has the name."""
    return bool(_bits(path) >> (len(_table()["generations"]) - 1))


def of_parameter(function: str, parameter: str) -> str | None:
    """Which generations had a parameter that ours does not, by the function as Python writes it in an error."""
    bits = _table()["parameters"].get(function.removesuffix(".__init__"), {}).get(parameter, 0)
    return _words(bits) if bits else None


def names_of(module: str) -> list[str]:
    """The public names and submodules that any Ray had there."""
    table = _table()
    below = [path[len(module) + 1 :] for path in table["modules"] if path.startswith(module + ".")]
    return [*table["names"].get(module, ()), *(name for name in below if "." not in name)]


def hints(function: str, parameter: str) -> list[str]:
    """What to say of a parameter that is unknown: nothing, where no Ray had it."""
    had = of_parameter(function, parameter)
    if had is None:
        return []
    from carril.as_ray.absent import PARAMETERS

    instead = PARAMETERS.get(parameter)
    name = function.removesuffix(".__init__")
    return [f"`{parameter}` is a parameter of `{name}` in {had}" + (f"; use {instead}" if instead else "")]
