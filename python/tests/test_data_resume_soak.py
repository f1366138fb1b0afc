"""Seeded attacks on resumed data: whatever is read, however it is read and whatever is killed, each row comes once in each epoch.

A seed decides the data sets (formats, sizes of row groups, unions, limits, functions that drop and copy rows, shuffles), how they are read, the
policy for uneven ranks, the budgets of memory, where each rank saves, how many workers there are after each kill, and what is killed when: a worker, a process of
a data function, the head, the driver. Each rank writes what it was handed into its part of each checkpoint, so that the last checkpoint holds what
the history that led to it has read, and nothing else. With CARRIL_LONG a hundred seeds, otherwise a few; a seed that fails is in the name of its test.
"""

import collections
import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
import soak_data
from conftest import processes, wait_until
from PIL import Image
from soak_data import drop_and_copy, keep, keep_stretches, twins

from carril import train

SEEDS = range(100) if os.environ.get("CARRIL_LONG") else range(3, 8)
LIVES = 4
KINDS = ("csv", "json", "gzip", "arrow", "npy", "tar", "txt", "bin", "png")
VICTIMS = {
    "worker": "carril worker:",
    "head": "private-head",
    "data": "carril: functions on data",
    "driver": "soak_data.py",
}

KILLED: collections.Counter[str | None] = collections.Counter()

Rows = list[int]


def write_file(path: Path, kind: str, rows: Rows, size: int) -> None:
    """Rows of one column in a file; those of Parquet in row groups of a size."""
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"id": rows}), path, row_group_size=size)
    elif kind == "csv":
        path.write_text("".join(["id\n", *(f"{row}\n" for row in rows)]) if rows else "")
    elif kind == "arrow":
        table = pyarrow.table({"id": pyarrow.array(rows, "i8")})
        with pyarrow.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=size)
    elif kind == "npy":
        numpy.save(path, numpy.array(rows, "i8"))
    elif kind == "tar":
        with tarfile.open(path, "w") as archive:
            for row in rows:
                member = tarfile.TarInfo(f"{row}.cls")
                member.size = len(str(row))
                archive.addfile(member, io.BytesIO(str(row).encode()))
    elif kind in ("txt", "bin"):
        path.write_text("\n".join(map(str, rows)))
    elif kind == "png":
        [row] = rows
        Image.fromarray(numpy.array([[[row >> 16, row >> 8 & 255, row & 255]]], "u1")).save(path)
    elif kind == "json":
        path.write_text("".join(f'{{"id": {row}}}\n' for row in rows))
    else:
        path.write_bytes(gzip.compress("".join(f'{{"id": {row}}}\n' for row in rows).encode()))


def draw_source(dice: random.Random, directory: Path, first: int) -> tuple[dict[str, Any], Rows]:
    """One source, and its rows in their order."""
    kind = dice.choice(["range", "parquet", "parquet", *KINDS])
    directory.mkdir(parents=True)
    if kind == "range":
        rows = list(range(dice.randrange(20, 2_000)))
        return {"kind": kind, "rows": len(rows)}, rows
    rows = []
    # A file is a row.
    is_single = kind in ("bin", "png")
    for number in range(dice.randrange(3, 80) if is_single else dice.randrange(1, 6)):
        count = dice.choice([0, 1, dice.randrange(100), dice.randrange(1_500)]) if number else dice.randrange(50, 1_500)
        count = 1 if is_single else count
        part = list(range(first + len(rows), first + len(rows) + count))
        suffix = {"gzip": "json.gz"}.get(kind, kind)
        write_file(directory / f"{number:02}.{suffix}", kind, part, dice.choice([1, 7, 64, 10_000]))
        rows += part
    return {"kind": kind, "directory": str(directory)}, rows


def draw_dataset(dice: random.Random, directory: Path) -> tuple[dict[str, Any], Rows]:
    """How a data set is made, and which rows it has."""
    sources, rows = [], []
    for number in range(dice.choice([1, 1, 1, 2, 3])):
        spec, part = draw_source(dice, directory / str(number), 10_000 * (number + 1))
        sources.append(spec)
        rows += part
        if spec["kind"] == "range" and number:
            # Its numbers begin at 0 in each of them.
            sources.pop()
            rows = rows[: len(rows) - len(part)]
    limit = dice.choice([None, None, None, dice.randrange(1, len(rows))])
    rows = rows[:limit]
    function = dice.choice([None, None, "map", "filter", "stretches", "none", "flat_map", "map_batches"])
    if function in ("filter", "stretches"):
        kept = keep if function == "filter" else keep_stretches
        rows = [row for row in rows if kept({"id": row})]
    elif function == "none":
        rows = []
    elif function == "flat_map":
        rows = [made["id"] for row in rows for made in twins({"id": row})]
    elif function == "map_batches":
        rows = drop_and_copy({"id": numpy.array(rows)})["id"].tolist()
    shuffle = dice.choice([None, "rows", "rows", "seeded", "blocks"])
    return {"sources": sources, "limit": limit, "function": function, "shuffle": shuffle}, rows


def kill(config: dict[str, Any], driver: subprocess.Popen[bytes], after: int, dice: random.Random) -> str | None:
    """Waits until so many batches were handed over, and kills one process; nothing where the run ends before."""
    file = Path(config["steps"])
    begun = file.stat().st_size if file.exists() else 0
    wait_until(
        lambda: driver.poll() is not None or (file.exists() and file.stat().st_size >= begun + after),
        f"{after} batches are read",
        processes,
    )
    victim = dice.choice(list(VICTIMS))
    found = [one.pid for one in processes() if VICTIMS[victim] in one.command]
    if driver.poll() is not None or not found:
        return None
    try:
        os.kill(driver.pid if victim == "driver" else dice.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return None
    return victim


def ledger(storage: Path) -> collections.Counter[tuple[int, int, int]]:
    (run,) = storage.rglob("soak")
    result = train.Result.from_path(str(run))
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        rows = numpy.concatenate([numpy.load(path) for path in Path(directory).glob("*.npy")])
    return collections.Counter(map(tuple, rows.tolist()))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_comes_once_in_each_epoch_whatever_is_killed(storage: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    # Ranks have equally many batches, and nearly so many rows.
    filesystem, ways = dice.random() < 0.3, ["batches", "torch", "mixed", "rows"]
    sets, expected = {}, []
    for number in range(dice.choice([1, 1, 2, 3])):
        spec, rows = draw_dataset(dice, tmp_path / "data" / str(number))
        how = dice.choice(ways[:3] if filesystem else ways)
        reading = {
            "how": how,
            "batch": dice.randrange(1, 200),
            "ahead": dice.randrange(4),
            "mixed": dice.randrange(2, 99),
            "drop_last": dice.random() < 0.2,
        }
        sets[f"set{number}"] = {"dataset": spec, **reading}
        expected.append(rows)
    config = {
        "seed": seed,
        "sets": sets,
        "epochs": dice.randrange(1, 4),
        "uneven": dice.choice(["drop", "drop", "pad", "repeat"]),
    }
    config |= {"storage": str(storage), "scratch": str(tmp_path), "steps": str(tmp_path / "steps")}
    config |= {"filesystem": filesystem}
    steps = sum(
        len(rows) / (1 if one["how"] == "rows" else one["batch"])
        for rows, one in zip(expected, sets.values(), strict=True)
    )
    history, largest = [], 1
    for life in range(LIVES):
        is_last = life == LIVES - 1
        workers = dice.randrange(1, 9)
        # A rank may be three checkpoints ahead of the others.
        saves = dice.randrange(1, 8 if filesystem else 4)
        largest = max(largest, workers)
        more = {"workers": workers, "life": life, "saves": saves, "most": dice.choice([saves + 3, 60])}
        after = 1 + int(dice.random() * config["epochs"] * steps / 2)
        # No order may depend on it.
        more |= {"memory": dice.choice([None, 1 << 20, 3 << 20, 64 << 20])}
        more |= {"restarts": 3 if is_last else dice.choice([0, 2])}
        with open(tmp_path / f"output{life}", "wb") as output:
            arguments = [sys.executable, soak_data.__file__, json.dumps(config | more)]
            driver = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
        try:
            history.append((workers, None if is_last else kill(config, driver, after, dice)))
            code = driver.wait(timeout=60)
        finally:
            driver.kill()
            driver.wait()
        wait_until(lambda: not processes(), "nothing is left of the run", processes)
        if code == 0:
            break
    KILLED.update(victim for _, victim in history)
    told = f"{history} {json.dumps(config)}"
    assert code == 0, f"{told}\n{(tmp_path / f'output{life}').read_text(errors='replace')[-3000:]}"
    seen = ledger(storage)
    twice = [row for row, times in seen.items() if times > 1]
    assert config["uneven"] == "repeat" or not twice, f"{len(twice)} rows were read twice, as {twice[:5]}: {told}"
    for number, rows in enumerate(expected):
        for epoch in range(config["epochs"]):
            read = {row for at, of, row in seen if (at, of) == (number, epoch)}
            assert read <= set(rows), f"rows of nowhere, as {sorted(read - set(rows))[:5]}: {told}"
            lost = set(rows) - read
            bound = largest if config["uneven"] == "drop" else 1
            one = sets[f"set{number}"]
            if one["drop_last"] and one["how"] != "rows":
                # Less than a batch of each rank.
                bound = largest * one["batch"]
            assert len(lost) < bound, (
                f"{len(lost)} of {len(rows)} rows of set{number}, {epoch}: {sorted(lost)[:5]}; {told}"
            )


def test_the_kills_fired() -> None:
    killed = KILLED.total() - KILLED[None]
    print(KILLED)
    assert killed >= len(SEEDS) // 2, KILLED
