"""`barrier` and `broadcast_from_rank_zero`, and the errors for calls of the ranks that do not fit together.

Only proof is an error: a rank has returned, or every rank waits for another. Each error names the ranks.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import fit, lines

from carril.exceptions import CollectiveError
from carril.train import ControllerError, TrainingFailedError

pytestmark = pytest.mark.usefixtures("head")


def _refused(function: Callable[..., Any], storage: Path, workers: int = 2, **run: Any) -> ControllerError:
    with pytest.raises(TrainingFailedError) as caught:
        fit(function, storage, workers=workers, **run)
    error = caught.value
    assert isinstance(error, ControllerError) and isinstance(error.controller_failure, CollectiveError)
    assert error.__cause__ is error.controller_failure and error.origin == "user" and not error.retryable
    return error


def test_a_barrier_lets_nobody_through_before_all_are_there(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        import os

        from carril import train
        from carril.train.collective import barrier

        rank = train.get_context().get_world_rank()
        for turn in range(20):
            with open(os.path.join(config["here"], f"{turn}-{rank}"), "w"):
                pass
            barrier()
            there = [r for r in range(3) if os.path.exists(os.path.join(config["here"], f"{turn}-{r}"))]
            train.report({"there": there})
            barrier()

    here = storage / "marks"
    here.mkdir()
    result = fit(function, storage, workers=3, config={"here": str(here)})
    for rank in range(3):
        assert [row["there"] for row in result.rank_metrics(rank)] == [[0, 1, 2]] * 20


def test_every_rank_gets_what_rank_0_gave(storage: Path) -> None:
    def function() -> None:
        from carril import train
        from carril.train.collective import broadcast_from_rank_zero

        class Own:
            text = "of a class of the script"

        rank = train.get_context().get_world_rank()
        small = broadcast_from_rank_zero({"from": rank, "nan": float("nan")})
        nothing = broadcast_from_rank_zero(None if rank == 0 else "not looked at")
        own = broadcast_from_rank_zero(Own() if rank == 0 else object())
        large = broadcast_from_rank_zero(b"x" * 5_000_000 if rank == 0 else None)
        again = [broadcast_from_rank_zero(turn + 100 * rank) for turn in range(50)]
        train.report({"small": small["from"], "nothing": nothing, "own": own.text, "large": len(large), "again": again})

    result = fit(function, storage, workers=3)
    expected = {"small": 0, "nothing": None, "own": "of a class of the script", "large": 5_000_000}
    for rank in range(3):
        (row,) = result.rank_metrics(rank)
        assert {key: row[key] for key in expected} == expected and row["again"] == list(range(50))


def test_one_worker_alone_waits_for_nobody(storage: Path) -> None:
    def function() -> Any:
        from carril.train.collective import barrier, broadcast_from_rank_zero

        barrier()
        return broadcast_from_rank_zero([1, 2])

    assert fit(function, storage, workers=1).return_value == [1, 2]


def test_a_rank_that_returned_while_others_wait_is_named(storage: Path) -> None:
    def function() -> None:
        from carril import train
        from carril.train.collective import barrier

        def meet_in_vain() -> None:
            barrier()

        barrier()
        if train.get_context().get_world_rank() != 1:
            meet_in_vain()

    error = _refused(function, storage, workers=3, name="gone")
    assert error.code == "collective-mismatch"
    told = re.search(r"rank 1 returned while ranks? ([0-9and, ]+) waits? in `barrier` number 2", str(error))
    assert told, str(error)
    assert "hint: every rank must call `barrier` the same number of times" in str(error)
    assert "rank 1 returned while" in (storage / "gone" / "error.txt").read_text()
    assert "hint: the stacks of every rank are in `stacks.txt`" in str(error)
    stacks = (storage / "gone" / "stacks.txt").read_text().split("\nrank ")[1:]
    assert [stack[0] for stack in stacks] == ["0", "1", "2"]
    # One of the two may not have come that far when the other one's wait was in vain already.
    waiting = {stack[0] for stack in stacks if "meet_in_vain" in stack}
    assert set(re.findall(r"\d", told[1])) <= waiting <= {"0", "2"}, "where they wait is kept"


def test_a_broadcast_without_its_rank_0_names_it(storage: Path) -> None:
    def function() -> None:
        from carril import train
        from carril.train.collective import broadcast_from_rank_zero

        if train.get_context().get_world_rank() == 1:
            broadcast_from_rank_zero(1)

    error = _refused(function, storage)
    assert "rank 0 returned while rank 1 waits in `broadcast_from_rank_zero`, collective number 1" in str(error)


def test_ranks_that_wait_for_each_other_are_named_with_their_places(storage: Path) -> None:
    def function() -> None:
        from carril import train
        from carril.train.collective import barrier, broadcast_from_rank_zero

        if train.get_context().get_world_rank() == 0:
            barrier()
        else:
            broadcast_from_rank_zero(1)

    error = _refused(function, storage, workers=3)
    text = str(error)
    assert "the ranks wait for each other: rank 0 waits in `barrier` number 1, ranks 1 and 2 wait in `broadcast" in text
    assert "hint: every rank must make the same calls of `barrier`, `broadcast_from_rank_zero` and `report`" in text


def test_a_barrier_against_a_checkpoint_that_cannot_commit_is_a_mismatch(storage: Path) -> None:
    def function() -> None:
        from carril import train

        if train.get_context().get_world_rank() == 0:
            train.report({"a": 1}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
            # Waits until the checkpoint is kept, for which rank 1's report is missing.
            train.get_checkpoint()
        else:
            train.collective.barrier()

    text = str(_refused(function, storage))
    assert "rank 0 waits for the checkpoint of report 1" in text and "rank 1 waits in `barrier` number 1" in text


def test_a_checkpoint_after_a_rank_has_returned_is_an_error_that_names_both(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        train.report({"step": 0})
        if rank == 0:
            train.report({"step": 1}, checkpoint=train.Checkpoint.from_dict({"a": 1}))

    error = _refused(function, storage, workers=3, name="unequal")
    assert error.code == "report-mismatch"
    assert "rank 0 reported a checkpoint with report 2, and ranks 1 and 2 returned before making that report" in str(
        error
    )
    assert "hint: every rank must call `report` as often as the others when a checkpoint is reported" in str(error)
    assert [row["step"] for row in lines(storage / "unequal" / "result.json")] == [0]
    assert not list((storage / "unequal").glob("checkpoint_*"))


def test_a_slow_rank_is_waited_for_however_far_the_others_are(storage: Path) -> None:
    def function() -> None:
        import time

        from carril import train
        from carril.train.collective import barrier

        if train.get_context().get_world_rank() == 1:
            time.sleep(0.5)
        train.report({"a": 1}, checkpoint=train.Checkpoint.from_dict({"a": 1}))
        barrier()
        train.report({"a": 2})

    result = fit(function, storage, workers=2)
    assert result.metrics is not None and result.metrics["a"] == 2 and result.checkpoint is not None
