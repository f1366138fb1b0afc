"""What `report` makes of the values it is given, and what of them reaches the Result, the files and the callbacks.

One run reports every kind of value, and the tests look at it from all sides.
"""

import csv
import math
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from runs import NO_RESTART, fit, lines, trainer

from carril.exceptions import ConfigTypeError, MetricsError
from carril.train import Result, UserCallback, WorkerGroupError

pytestmark = pytest.mark.usefixtures("head")

COUNT = 200_000 if os.environ.get("CARRIL_LONG") else 30_000


class Seen(UserCallback):
    """Remembers what callbacks are given."""

    def __init__(self) -> None:
        self.reports: list[list[dict[str, Any]]] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.reports.append(metrics)


@pytest.fixture(scope="module")
def kinds(head: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Seen]:
    def function() -> None:
        import collections
        import fractions

        import numpy
        import torch

        from carril import train

        class Text(str):
            pass

        train.report(
            collections.OrderedDict(
                float=0.1,
                int=7,
                big=2**80,
                negative=-(2**70),
                bool=True,
                none=None,
                text='a "quoted", text\nof two lines: é',
                subclass=Text("t"),
                nan=float("nan"),
                inf=float("inf"),
                low=float("-inf"),
                list=[1, 2.5, None, [True, "x"], {"deep": numpy.float32(0.5)}],
                tuple=(1, 2),
                nested={"a": {"b": numpy.int64(3)}, "c": 1.5},
                empty={},
                np_float32=numpy.float32(0.1),
                np_float64=numpy.float64(0.1),
                np_float16=numpy.float16(0.1),
                np_int8=numpy.int8(-5),
                np_uint64=numpy.uint64(2**64 - 1),
                np_bool=numpy.bool_(True),
                np_nan=numpy.float32("nan"),
                np_inf=numpy.float64("-inf"),
                np_zero_d=numpy.array(4),
                np_text=numpy.str_("text"),
                tensor=torch.tensor(0.1),
                tensor_double=torch.tensor(0.1, dtype=torch.float64),
                tensor_int=torch.tensor(3),
                tensor_bool=torch.tensor(False),
                tensor_one=torch.tensor([2.5]),
                tensor_grad=torch.tensor(1.5, requires_grad=True) * 2,
                tensor_nan=torch.tensor(float("nan")),
                tensor_half=torch.tensor(0.1, dtype=torch.bfloat16),
                object=fractions.Fraction(1, 3),
                array=numpy.arange(3),
                **{"slash/key": 1, "": 2},
            )
        )

    seen = Seen()
    result = fit(function, tmp_path_factory.mktemp("kinds"), workers=1, callbacks=[seen])
    return result, seen


EXACT = {
    "float": 0.1,
    "int": 7,
    "big": 2**80,
    "negative": -(2**70),
    "bool": True,
    "none": None,
    "text": 'a "quoted", text\nof two lines: é',
    "subclass": "t",
    "inf": math.inf,
    "low": -math.inf,
    "list": [1, 2.5, None, [True, "x"], {"deep": 0.5}],
    "tuple": [1, 2],
    "nested": {"a": {"b": 3}, "c": 1.5},
    "empty": {},
    "np_float32": 0.10000000149011612,
    "np_float64": 0.1,
    "np_float16": 0.0999755859375,
    "np_int8": -5,
    "np_uint64": 2**64 - 1,
    "np_bool": True,
    "np_inf": -math.inf,
    "np_zero_d": 4,
    "np_text": "text",
    "tensor": 0.10000000149011612,
    "tensor_double": 0.1,
    "tensor_int": 3,
    "tensor_bool": False,
    "tensor_one": 2.5,
    "tensor_grad": 3.0,
    "tensor_half": 0.10009765625,
    "slash/key": 1,
    "": 2,
}


@pytest.mark.parametrize("where", ["result", "callback", "file"])
def test_every_value_arrives_as_the_python_value_of_the_same_kind(kinds: tuple[Result, Seen], where: str) -> None:
    result, seen = kinds
    assert result.metrics is not None and result.path is not None
    got = {
        "result": result.metrics,
        "callback": seen.reports[0][0],
        "file": lines(Path(result.path, "result.json"))[0],
    }[where]
    for key, value in EXACT.items():
        assert (got[key], type(got[key])) == (value, type(value)), key
    for key in ("nan", "np_nan", "tensor_nan"):
        assert type(got[key]) is float and math.isnan(got[key]), key


def test_another_object_is_itself_in_result_and_callbacks_and_its_repr_in_the_files(
    kinds: tuple[Result, Seen],
) -> None:
    import fractions

    result, seen = kinds
    assert result.metrics is not None and result.path is not None
    for metrics in (result.metrics, seen.reports[0][0]):
        assert metrics["object"] == fractions.Fraction(1, 3)
        assert list(metrics["array"]) == [0, 1, 2] and type(metrics["array"]).__name__ == "ndarray"
    row = lines(Path(result.path, "result.json"))[0]
    assert row["object"] == "Fraction(1, 3)" and row["array"] == "array([0, 1, 2])"


def test_the_csv_file_has_the_same_values_flattened(kinds: tuple[Result, Seen]) -> None:
    result, _ = kinds
    assert result.path is not None
    with open(Path(result.path, "progress.csv"), newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert None not in row, "every cell has a column"
    for key in ("float", "np_float32", "tensor", "int", "big", "tensor_int", "inf", "np_inf", "nan"):
        assert repr(float(row[key])) == repr(float((EXACT | {"nan": math.nan})[key])), key
    assert (row["bool"], row["none"], row["text"]) == ("True", "", EXACT["text"])
    assert (row["nested/a/b"], row["nested/c"], row["object"]) == ("3", "1.5", "Fraction(1, 3)")
    assert row["empty"] == "{}"


def test_what_is_no_metric_is_refused_in_the_function_and_the_key_is_named(storage: Path) -> None:
    def function() -> list[str]:
        import threading

        import torch

        from carril import train

        loop: dict[str, Any] = {}
        loop["loop"] = loop
        refused: list[dict[str, Any]] = [
            {"loss": torch.ones(2, 3)},
            {"a": {"b": torch.ones(2)}},
            {"gone": torch.ones(0)},
            {"lock": threading.Lock()},
            {"self": loop},
        ]
        texts = []
        for metrics in refused:
            try:
                train.report(metrics)
            except Exception as error:
                texts.append(f"{type(error).__name__}: {error}")
        train.report({"went on": True})
        return texts

    result = fit(function, storage, workers=1)
    expected = [
        "the metric `loss` is a `torch.Tensor` of shape [2, 3]: a metric is one number\n"
        "hint: reduce it first, as in `loss.mean().item()`",
        "the metric `a/b` is a `torch.Tensor` of shape [2]",
        "the metric `gone` is a `torch.Tensor` of shape [0]",
        "the metric `lock` cannot be pickled: TypeError: cannot pickle",
        "nested too deeply",
    ]
    assert len(result.return_value) == len(expected), result.return_value
    for text, part in zip(result.return_value, expected, strict=True):
        assert text.startswith(MetricsError.__name__) and part in text
    assert len(result.rank_metrics(0)) == 1, "what was refused is not reported"


def test_metrics_that_are_no_dict_are_refused(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report([("loss", 1)])  # type: ignore[arg-type]

    with pytest.raises(WorkerGroupError, match="`metrics` is a list: it must be a dict") as caught:
        fit(function, storage, workers=1)
    assert isinstance(caught.value.worker_failures[0], ConfigTypeError)


def test_every_rank_s_values_are_kept_and_rank_0_s_are_the_run_s(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        for step in range(3):
            train.report({"rank": rank, "value": 10 * rank + step, f"only_{rank}": step})

    result = fit(function, storage, workers=3)
    assert result.metrics is not None and result.metrics["rank"] == 0 and result.metrics["value"] == 2
    assert "only_1" not in result.metrics
    for rank in range(3):
        rows = result.rank_metrics(rank)
        assert [row["value"] for row in rows] == [10 * rank + step for step in range(3)]
        assert [row[f"only_{rank}"] for row in rows] == [0, 1, 2]
        assert [row["training_iteration"] for row in rows] == [1, 2, 3]


def test_metrics_reduce_aggregates_over_the_ranks_and_keeps_each_rank_s_own(storage: Path) -> None:
    def function() -> None:
        from carril import train

        rank = train.get_context().get_world_rank()
        for step in (1, 2):
            value = step * (rank + 1)
            odd = float("nan") if rank == 2 else 1.0
            train.report({"mean": value, "sum": value, "min": value, "max": value, "own": value, "odd": odd, "t": "x"})

    rules = {"mean": "mean", "sum": "sum", "min": "min", "max": "max", "odd": "max", "absent": "sum", "t": "mean"}
    result = fit(function, storage, workers=3, metrics_reduce=rules)
    metrics = result.metrics
    assert metrics is not None
    assert [metrics[key] for key in ("mean", "sum", "min", "max", "own", "t")] == [4.0, 12.0, 2.0, 6.0, 2, "x"]
    assert math.isnan(metrics["odd"]), "NaN on one rank is not hidden"
    assert "absent" not in metrics
    assert [row["mean"] for row in result.rank_metrics(0)] == [1, 2]
    assert [row["mean"] for row in result.rank_metrics(2)] == [3, 6]
    assert [row["mean"] for row in lines(Path(str(result.path), "result.json"))] == [2.0, 4.0]


def test_ranks_that_report_unequally_often_are_warned_of_once_with_their_counts(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def function() -> None:
        from carril import train

        for step in range((2, 5, 3)[train.get_context().get_world_rank()]):
            train.report({"step": step})

    seen = Seen()
    result = fit(function, storage, workers=3, callbacks=[seen])
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(warnings) == 1, warnings
    assert "the ranks report unequally often" in warnings[0] and "rank 0 made 2" in warnings[0]
    assert result.metrics is not None and result.metrics["step"] == 1
    assert [len(result.rank_metrics(rank)) for rank in range(3)] == [2, 5, 3]
    by_rank = [[metrics.get("step") for metrics in report] for report in seen.reports]
    assert by_rank == [[0, 0, 0], [1, 1, 1], [None, 2, 2], [None, 3, None], [None, 4, None]]


def test_a_rank_that_runs_far_ahead_is_slowed_and_nothing_is_lost(storage: Path) -> None:
    def function(config: dict[str, Any]) -> int:
        import os
        import time

        from carril import train

        mine = train.get_context().get_world_rank()
        here = os.path.join(config["here"], "hundreds")
        deadline = time.monotonic() + 60
        hundreds, looks = 0, 0
        # Rank 0 does not begin before rank 1 has come as far as it may, and has then stood still for a while.
        while mine == 0 and looks < 20 and time.monotonic() < deadline:
            hundreds = os.path.getsize(here) if os.path.exists(here) else 0
            looks += hundreds >= 100
            time.sleep(0.02)
        for step in range(config["count"]):
            train.report({"step": step})
            if mine == 1 and step % 100 == 0:
                with open(here, "ab", buffering=0) as file:
                    file.write(b"x")
        return hundreds

    result = fit(function, storage, workers=2, config={"here": str(storage), "count": COUNT})
    assert result.return_value == 100, "rank 1 waits after 10,000 reports, and not before"
    for rank in range(2):
        assert [row["step"] for row in result.rank_metrics(rank)] == list(range(COUNT))


def test_a_report_is_in_the_files_when_the_process_dies_right_after_it(storage: Path) -> None:
    def function() -> None:
        import os
        import signal

        from carril import train

        for step in range(100):
            train.report({"step": step})
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerGroupError):
        fit(function, storage, workers=1, name="dies", failure_config=NO_RESTART)
    assert [row["step"] for row in lines(storage / "dies" / "result.json")] == list(range(100))


def test_the_files_can_be_read_while_the_run_goes_on(storage: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        import os
        import time

        from carril import train

        train.report({"step": 1})
        while not os.path.exists(config["go"]):
            time.sleep(0.01)

    import threading

    go = storage / "go"
    running = trainer(function, storage, workers=2, config={"go": str(go)}, name="live")
    thread = threading.Thread(target=running.fit)
    thread.start()
    try:
        file = storage / "live" / "result.json"
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the report is in the file")
        so_far = Result.from_path(storage / "live")
        assert so_far.metrics is not None and so_far.metrics["step"] == 1 and so_far.metrics["done"] is False
        assert so_far.error is None
        assert (storage / "live" / "progress.csv").read_text().count("\n") == 2
    finally:
        go.touch()
        thread.join()
