"""The processes that run functions on data: forked from one that has imported what they need, and replaced when somebody kills them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from driver_scripts import wait_until

import carril
from carril import data, train
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


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def where_it_runs(row: dict[str, Any]) -> dict[str, Any]:
    """A function that tells where its process comes from, and whether it had to import torch itself."""
    import os
    import sys

    with open(f"/proc/{os.getppid()}/stat") as file:
        manager_of = int(file.read().rpartition(")")[2].split()[1])
    with open(f"/proc/{os.getpid()}/cmdline", "rb") as file:
        title = file.read().rstrip(b"\0").decode()
    return {"manager_of": manager_of, "has_torch": "torch" in sys.modules, "title": title, **row}


def test_with_a_head_a_data_set_forks_from_the_zygote() -> None:
    """No process of the driver's own is started, and nothing is imported again."""
    carril.shutdown()
    with carril.init() as context:
        directory = context["session_dir"]
        seen = [data.range(1).map(where_it_runs).take_all()[0] for _ in range(3)]
        (head,) = {row["manager_of"] for row in seen}
        with open(f"/proc/{head}/cmdline", "rb") as file:
            assert b"private-head" in file.read(), "the agent is the parent of what the zygote forks"
        assert {(row["has_torch"], row["title"]) for row in seen} == {(True, "carril: functions on data")}
        assert any(name.startswith("mappers-") for name in os.listdir(directory))


def test_a_zygote_that_cannot_fork_costs_only_time() -> None:
    carril.shutdown()
    with carril.init() as context:
        directory = context["session_dir"]
        wait_until(lambda: any(name.startswith("mappers-") for name in os.listdir(directory)), "the zygote listens")
        (name,) = [name for name in os.listdir(directory) if name.startswith("mappers-")]
        os.remove(os.path.join(directory, name))
        (row,) = data.range(1).map(grandparent()).take_all()
        assert row["has_torch"] and parent_of(row["nursery"]) == os.getpid()


def test_workers_fork_theirs_from_what_they_were_forked_from(storage: Path) -> None:
    def loop() -> dict[str, Any]:
        import os

        (row,) = [row for batch in train.get_dataset_shard("own").iter_rows() for row in [batch]]
        inside = data.range(1).map(where_it_runs).take_all()[0]
        with open(f"/proc/{os.getpid()}/stat") as file:
            agent = int(file.read().rpartition(")")[2].split()[1])
        return {"given": row, "inside": inside, "worker": os.getpid(), "agent": agent}

    trainer = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(storage_path=storage),
        datasets={"own": data.range(1).map(grandparent())},
    )
    with carril.init():
        told = trainer.fit().return_value
    assert told["given"]["has_torch"] and told["inside"]["has_torch"]
    # A nursery that is the worker's own, so that it is counted and ended with it.
    assert told["inside"]["manager_of"] == told["given"]["nursery"] != told["agent"]


def test_a_function_may_start_processes_and_learn_how_they_ended() -> None:
    def asks(row: dict[str, Any]) -> dict[str, Any]:
        import subprocess

        return {"code": subprocess.run(["false"], check=False).returncode}

    carril.shutdown()
    assert data.range(1).map(asks).take_all() == [{"code": 1}]
    carril.shutdown()
    with carril.init():
        assert data.range(1).map(asks).take_all() == [{"code": 1}]


def test_a_function_ends_with_the_process_that_made_its_own(tmp_path: Path) -> None:
    """Also in the middle of a long one: nothing is left behind by a driver that is killed."""
    place = tmp_path / "pids"
    script = f"""
import os, signal
from carril import data

def endless(row):
    with open({str(place)!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{os.getppid()}}\\n")
    signal.pause()

data.range(1).map(endless).take_all()
"""
    driver = subprocess.Popen([sys.executable, "-c", script])
    wait_until(lambda: place.exists() and place.read_text().endswith("\n"), "the function to run")
    mapper, manager = map(int, place.read_text().split())
    driver.kill()
    driver.wait()
    wait_until(lambda: is_gone(mapper) and is_gone(manager), "the end of both processes")


def is_gone(pid: int) -> bool:
    """A zombie that nobody collects has ended too."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_without_a_head_every_data_set_forks_from_one_process_which_has_imported_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carril.shutdown()
    assert "torch" in sys.modules and torch.__version__
    seen = set()
    for number in range(3):
        monkeypatch.setenv("PLACE", str(number))
        (row,) = data.range(1).map(grandparent()).take_all()
        assert (row["has_torch"], row["place"]) == (True, str(number))
        seen.add(row["nursery"])
    assert len(seen) == 1
    assert parent_of(seen.pop()) == os.getpid()


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


@pytest.mark.parametrize(
    ("signal", "told", "origin"),
    [(9, "SIGKILL", "infrastructure"), (15, "SIGTERM", "infrastructure"), (11, "SIGSEGV", "user")],
)
def test_rows_with_which_every_process_ends_are_an_error_that_says_whose(
    tmp_path: Path, signal: int, told: str, origin: str
) -> None:
    tried = str(tmp_path)

    def always(row: dict[str, Any]) -> dict[str, Any]:
        import os
        import tempfile

        tempfile.mkstemp(dir=tried)
        os.kill(os.getpid(), signal)
        return row

    with pytest.raises(WorkerDiedError, match=f"was ended by {told}, 3 times with the same rows") as caught:
        data.range(1).map(always).take_all()
    assert caught.value.origin == origin
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(("signal", "code", "restarts"), [(9, "worker-killed", 2), (11, "user-exception", 0)])
def test_a_run_is_restarted_for_processes_that_somebody_kills_and_not_for_those_that_crash(
    storage: Path, tmp_path: Path, signal: int, code: str, restarts: int
) -> None:
    tried = str(tmp_path)

    def ends(row: dict[str, Any]) -> dict[str, Any]:
        import os
        import tempfile

        tempfile.mkstemp(dir=tried, prefix="tried-")
        os.kill(os.getpid(), signal)
        return row

    def read() -> None:
        list(train.get_dataset_shard("train").iter_batches())

    failures = train.FailureConfig(max_failures=0, max_infrastructure_failures=2)
    trainer = train.DataParallelTrainer(
        read,
        run_config=train.RunConfig(storage_path=str(storage), failure_config=failures),
        datasets={"train": data.range(1).map(ends)},
    )
    with pytest.raises(train.WorkerGroupError) as caught:
        trainer.fit()
    assert caught.value.code == code
    # Three processes in each attempt.
    assert len(list(tmp_path.glob("tried-*"))) == 3 * (1 + restarts)
