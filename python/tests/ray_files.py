"""What a script for Ray has printed and left behind, as named fields that can be compared with those of another run.

`fields` reads a directory: each report in `result.json`, each column of `progress.csv`, each file of a checkpoint, each row
of a table is a field. Names that a run makes up (dates, ids, numbers of processes) are replaced by words, so that equal runs
have equal names. `differences` compares two such readings; what differs on purpose is named by the caller, with a reason.
"""

import io
import json
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Fields = dict[str, Any]

# In the order of their use. A checkpoint of Train is named by its time, a trial by five digits of its experiment and its number.
_MADE_UP = [
    (r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(\.\d+)?", "DATE"),
    (r"\b[0-9a-f]{5}(?=_\d{5})", "ID"),
    (r"(?<=_)[0-9a-f]{5}(?=_\d{5})", "ID"),
    (r"(?<=_)[0-9a-f]{8}(?=_\d+_|$)", "ID"),
    (r"^[0-9a-f]{8}$", "ID"),
    (r"events\.out\.tfevents\..*", "events.out.tfevents"),
]
# What libraries keep at home, and the harness.
_OF_THE_HOME = {".ray", ".config", ".cache"}
_TABLES = {".parquet": pd.read_parquet, ".csv": pd.read_csv, ".json": lambda path: pd.read_json(path, lines=True)}


def without_made_up(name: str) -> str:
    for pattern, word in _MADE_UP:
        name = re.sub(pattern, word, name)
    return name


def fields(directory: Path, output: str) -> Fields:
    """Of everything under a directory, in which the script was started, and of its last line."""
    found: Fields = dict(flattened("printed", printed(output), directory))
    names = {directory: ""}
    for path, name in named_runs(directory):
        names[path] = name
        found[f"{name}:directory"] = without_made_up(path.name)
    for path in sorted(directory.rglob("*")):
        if path.relative_to(directory).parts[0] in _OF_THE_HOME:
            continue
        if path.is_dir():
            name = names.setdefault(path, f"{names[path.parent]}/{without_made_up(path.name)}".lstrip("/"))
            for number, checkpoint in enumerate(sorted(path.glob("checkpoint_*"))):
                names[checkpoint] = f"{name}/checkpoint {number}"
                found[f"{name}:checkpoints[{number}]"] = without_made_up(checkpoint.name)
        elif is_of_table(path):
            found.update(table(path.parent, names[path.parent]))
        else:
            name = f"{names[path.parent]}/{without_made_up(path.name)}".lstrip("/")
            found.update(flattened(name, content(path), directory))
    return found


def named_runs(directory: Path) -> Iterator[tuple[Path, str]]:
    """The directories of trials, each named by its config: ids are drawn, and numbers are given in the order of ends.

    A trainer of Ray's older Train is a trial of its own, inside of what is the run's directory for us."""
    names: dict[str, int] = {}
    for path in sorted(directory.rglob("params.json")):
        experiment = path.parent.parent
        where = "/".join(map(without_made_up, experiment.relative_to(directory).parts))
        if (experiment / "trainer.pkl").exists():
            yield path.parent, where
        elif (experiment / "tuner.pkl").exists() or any(experiment.glob("experiment_state-*.json")):
            config = json.dumps(json.loads(path.read_text()), sort_keys=True).replace(str(directory), "HERE")
            name = f"{where}/trial {config}"
            names[name] = names.get(name, 0) + 1
            yield path.parent, f"{name} #{names[name]}" if names[name] > 1 else name


def printed(output: str) -> Any:
    """The last line, which is a sentence or an object of JSON."""
    last = output.splitlines()[-1]
    return json.loads(last) if last.startswith("{") else last


def is_of_table(path: Path) -> bool:
    """Files that a data set was written to: their names are made up, and rows may be in any order."""
    return path.suffix in _TABLES and re.search(r"_\d{6}", path.stem) is not None and path.stem[0] != "."


def table(directory: Path, where: str) -> Iterator[tuple[str, Any]]:
    files = [path for path in sorted(directory.iterdir()) if is_of_table(path)]
    rows = pd.concat([_TABLES[path.suffix](path) for path in files])
    rows = rows[sorted(rows.columns)].sort_values(sorted(rows.columns))
    yield f"{where}/files", len(files)
    for column in rows.columns:
        yield f"{where}/{column} {rows[column].dtype}", rows[column].tolist()


def content(path: Path) -> Any:
    """What a file says, where that can be compared; else only that it is there, as of what a library writes for itself."""
    if path.name.startswith("."):
        return "there"
    if path.name == "result.json":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.name == "progress.csv":
        frame = pd.read_csv(path)
        return {column: [None if pd.isna(one) else one for one in frame[column].tolist()] for column in frame.columns}
    within = [part for part in path.parts if part.startswith(("checkpoint_", "epoch_", "saved_"))]
    if path.suffix == ".json" and (within or path.name == "params.json"):
        return json.loads(path.read_text())
    if path.suffix == ".npy":
        return np.load(path).tolist()
    if path.suffix in (".pt", ".pth", ".pkl") and within:
        return unpickled(path)
    if path.suffix == ".txt" and path.name != "error.txt":
        return path.read_text().splitlines()
    return "there"


class _OfRay:
    """Stands for what Ray puts into a pickle for itself, and is no field."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _OfRay if module.partition(".")[0] == "ray" else super().find_class(module, name)


def unpickled(path: Path) -> Any:
    """Of torch, whose files are archives, or of pickle."""
    import torch

    packed = path.read_bytes()
    if packed.startswith(b"PK"):
        return torch.load(io.BytesIO(packed), weights_only=False)
    return _Unpickler(io.BytesIO(packed)).load()


def flattened(name: str, value: Any, directory: Path) -> Iterator[tuple[str, Any]]:
    """One field for each number or text inside; paths begin with HERE. A field that is nothing is none: Ray writes some of
    them always, and we where there is something."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        for key, inside in value.items():
            yield from flattened(f"{name}:{key}", inside, directory)
    elif isinstance(value, list | tuple):
        for number, inside in enumerate(value):
            yield from flattened(f"{name}[{number}]", inside, directory)
    elif isinstance(value, str):
        yield name, "/".join(map(without_made_up, value.replace(str(directory), "HERE").split("/")))
    elif value is not None and not isinstance(value, _OfRay):
        yield name, value


def differences(ours: Fields, theirs: Fields, on_purpose: Mapping[str, str], script: str) -> tuple[list[str], set[str]]:
    """One line for each field that differs, or that only one has, and the patterns of `on_purpose` that excused some.

    The patterns are searched in `script field`; the values of `on_purpose` are the reasons."""
    lines, used = [], set()
    for name in sorted(set(ours) | set(theirs)):
        if name not in theirs:
            line = f"only ours: {name} = {ours[name]!r}"
        elif name not in ours:
            line = f"only Ray's: {name} = {theirs[name]!r}"
        elif not equal(ours[name], theirs[name]):
            line = f"{name}: ours {ours[name]!r}, Ray's {theirs[name]!r}"
        else:
            continue
        excuses = {pattern for pattern in on_purpose if re.search(pattern, f"{script} {name}")}
        used |= excuses
        if not excuses:
            lines.append(line)
    return lines, used


def equal(ours: Any, theirs: Any) -> bool:
    """Floats may differ in their last digits: ranks add up in another order."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-7) or (math.isnan(ours) and math.isnan(theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)
