"""The tables of Ray's names in `docs/reference/ray`: our package is what they say, and each difference has a reason.

Ray is not needed: its tables are files. The package is asked as it is installed.
"""

import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "docs" / "reference" / "ray"


@pytest.fixture(scope="module")
def surface() -> Any:
    """The module `scripts/surface/make.py`, without its directory staying on the path."""
    directory = str(ROOT / "scripts" / "surface")
    before = set(sys.modules)
    sys.path.insert(0, directory)
    try:
        yield importlib.import_module("make")
    finally:
        sys.path.remove(directory)
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(directory):
                del sys.modules[name]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TABLES / "surface.json").read_text())["names"]
    return found


def test_the_tables_are_those_of_the_installed_package(surface: ModuleType) -> None:
    stale = [str(path) for path, text in surface.results().items() if path.read_text() != text]
    assert stale == [], "`make surface` writes them again"


def test_every_difference_has_a_reason(names: dict[str, Any]) -> None:
    without = [
        f"{name}: {what}" for name, row in names.items() for what, why in row.get("differences", {}).items() if not why
    ]
    assert without == []
    states = Counter(row["state"] for row in names.values())
    assert set(states) == {"same", "differs", "absent on purpose", "not built yet"}
    assert states["same"] > 100


def test_every_reason_has_a_difference(surface: ModuleType, names: dict[str, Any]) -> None:
    """A reason that nothing needs any more is removed."""
    used = {why for row in names.values() for why in row.get("differences", {}).values()}
    assert set(surface.reasons().values()) - used == set()


def test_every_generation_has_a_table(surface: ModuleType) -> None:
    tables = surface.tables()
    assert list(tables)[:4] == ["1.13", "2.0", "2.3", "2.7"]
    for table in tables.values():
        assert {"ray", "ray.tune", "ray.train", "ray.data"} <= set(table["modules"])


def test_the_newest_generation_is_the_version_that_is_followed(surface: ModuleType) -> None:
    newest = list(surface.tables().values())[-1]
    ours = (ROOT / "python/carril/as_ray/path/ray/__init__.py").read_text()
    assert f'__version__ = "{newest["version"]}"' in ours


def test_what_a_data_set_lacks_says_what_does_about_the_same(names: dict[str, Any]) -> None:
    from carril.data._later import METHODS

    lacking = {what.split("`")[1] for what in names["ray.data.Dataset"]["differences"] if what.startswith("no method")}
    assert lacking - set(METHODS) == set()


def test_what_is_absent_has_a_hint_of_its_own() -> None:
    from carril.as_ray import absent

    profiler = "ray.train.callbacks.TorchTensorboardProfilerCallback"
    assert absent.find(profiler) == (True, absent.ABSENT[profiler])
    assert absent.find("ray.train.callbacks.Unheard")[1] == absent.ABSENT["ray.train.callbacks"]
    assert absent.find("ray.data.read_sql") == (False, absent.LATER["ray.data.read_"])
    assert absent.find("ray.traineeship")[1] == absent.LATER["ray"]


def described(*parameters: str, **members: list[str]) -> dict[str, Any]:
    inside = {name: {"kind": "method", "parameters": found} for name, found in members.items()}
    return {"kind": "class", "parameters": list(parameters), "members": inside}


@pytest.mark.parametrize(
    ("theirs", "ours", "differences"),
    [
        (described("a", "b=1"), described("a", "b=1", "c=2"), []),
        (described("a"), described("*args", "**options"), []),
        (described("a", "*", "b=1"), described("a", "b=1"), []),
        (described("a", "b=1"), described("a"), ["no parameter `b`"]),
        (described("b=1"), described("b=2"), ["`b` defaults to 2, not 1"]),
        (described("b=1"), described("b"), ["`b` has no default, not 1"]),
        (described("b=<marker>"), described("b=None"), []),
        (described("a"), described("a", "b"), ["`b` has to be given"]),
        (
            described("a", "b"),
            described("b", "a"),
            ["`a` is not the argument number 1", "`b` is not the argument number 2"],
        ),
        (described("a", "b=1"), described("a", "*", "b=1"), ["`b` is not the argument number 2"]),
        (described(run=["x"]), described(), ["no method `run`"]),
        (described(run=["x", "y=1"]), described(run=["x"]), ["`run`: no parameter `y`"]),
    ],
)
def test_a_call_that_ray_takes_and_ours_does_not_is_a_difference(
    surface: ModuleType, theirs: dict[str, Any], ours: dict[str, Any], differences: list[str]
) -> None:
    from carril.as_ray import absent

    table = {"paths": [], "modules": {"ray.x": {"Name": theirs}}}
    (row,) = surface.compare.compare(table, {"paths": [], "modules": {"ray.x": {"Name": ours}}}, absent, {})
    assert sorted(row.differences) == sorted(differences)
    assert row.state.value == ("differs" if differences else "same")
