"""The processes that run functions on data: forked from one that is kept, and replaced when somebody kills them."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from carril import data
from carril.exceptions import WorkerDiedError


def grandparent() -> Any:
    """A function that tells which process the process was forked from that its own was forked from, and what is imported."""

    def function(row: dict[str, Any]) -> dict[str, Any]:
        import os
        import sys

        with open(f"/proc/{os.getppid()}/stat") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
        return {"nursery": parent, "has_torch": "torch" in sys.modules, "place": os.environ.get("PLACE"), **row}

    return function


def test_every_data_set_forks_from_the_same_process_which_has_imported_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "torch" in sys.modules and torch.__version__
    seen = set()
    for number in range(3):
        monkeypatch.setenv("PLACE", str(number))
        (row,) = data.range(1).map(grandparent()).take_all()
        assert (row["has_torch"], row["place"]) == (True, str(number))
        seen.add(row["nursery"])
    assert len(seen) == 1
    with open(f"/proc/{seen.pop()}/stat") as file:
        assert int(file.read().rpartition(")")[2].split()[1]) == os.getpid()


def test_a_process_that_is_killed_is_replaced_and_its_rows_are_done_again(tmp_path: Path) -> None:
    killed = str(tmp_path / "killed")

    def once(row: dict[str, Any]) -> dict[str, Any]:
        import os

        if row["id"] % 1000 == 777 and not os.path.exists(f"{killed}-{row['id']}"):
            open(f"{killed}-{row['id']}", "w").close()
            os.kill(os.getpid(), 9)
        return row

    rows = data.range(5000).repartition(10).map(once).take_all()
    assert len(list(tmp_path.iterdir())) == 5, "every kill was carried out"
    assert [row["id"] for row in rows] == list(range(5000))


def test_rows_that_end_every_process_are_an_error_of_the_function(tmp_path: Path) -> None:
    tried = str(tmp_path)

    def always(row: dict[str, Any]) -> dict[str, Any]:
        import os
        import tempfile

        tempfile.mkstemp(dir=tried)
        os.kill(os.getpid(), 9)
        return row

    with pytest.raises(WorkerDiedError, match="3 times with the same rows") as caught:
        data.range(1).map(always).take_all()
    assert caught.value.origin == "user"
    assert len(list(tmp_path.iterdir())) == 3
