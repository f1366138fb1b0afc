"""Scripts that are written for Ray Data, run unchanged under `carril as-ray`: a CSV file that is split and trained on by eight
workers, and pictures that are streamed through a pool of processes into training within a budget of memory.

The scripts are among the examples, and those of the guide on data are run too. The usual size is small files and one epoch; with CARRIL_LONG it is what the
examples have by default: a gigabyte of pictures, read twice.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from driver_scripts import Script, Scripts, scripts_fixture, values  # noqa: F401
from tree_memory import PeakMemory

from carril._internal.command import find_command

LONG = bool(os.environ.get("CARRIL_LONG"))
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/guide/data.md").read_text(), re.MULTILINE | re.DOTALL)
CARRIL = find_command()
# Data sets and torch in ten processes on a machine that may be busy; the full size makes and reads a gigabyte.
PATIENCE_S = 900.0 if LONG else 120.0
GIGABYTE = 1_000_000_000


def run_example(scripts: Scripts, cpus: int, name: str, *arguments: str) -> tuple[str, PeakMemory]:
    """What it printed, and what it took of memory at most."""
    command = (CARRIL, "as-ray", "--num-cpus", str(cpus), "--", sys.executable, str(EXAMPLES / name), *arguments)
    script: Script = scripts.start_command(*command)
    memory = PeakMemory(script)
    memory.start()
    try:
        code = script.finish(PATIENCE_S)
    finally:
        memory.finish()
    assert code == 0, script.output
    assert memory.samples > 10
    return script.output, memory


def test_a_csv_file_is_split_and_every_row_is_seen_by_one_of_eight_workers(scripts: Scripts) -> None:
    rows, epochs = (200_000, 3) if LONG else (4_003, 1)
    output, _ = run_example(scripts, 8, "data_ray_csv.py", f"--rows={rows}", f"--num-epochs={epochs}")
    told = re.search(r"accuracy ([\d.]+)% on (\d+) rows, after (\d+) epochs of (\d+) rows", output)
    assert told is not None, output
    accuracy, validated, passes, trained = (float(number) for number in told.groups())
    test = round(rows * 0.2)
    # Every worker takes as many steps as the others: what is left when rows are dealt to eight is not read.
    assert validated == test // 8 * 8
    assert trained == (rows - test) // 8 * 8
    assert passes == epochs
    assert accuracy > (90 if LONG else 50)


def test_pictures_stream_through_a_pool_into_training_within_the_budget(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    size, epochs = (1, 2) if LONG else (0.02, 1)
    arguments = (f"--data-size-gb={size}", f"--num-epochs={epochs}", "--num-workers=1", "--smoke-test")
    output, memory = run_example(scripts, 4, "image_pipeline.py", *arguments)
    with capsys.disabled():
        print(f"\n{memory}")
    told = re.search(r"accuracy ([\d.]+)%, loss [\d.]+ on (\d+) of (\d+) pictures in epoch (\d+)", output)
    assert told is not None, output
    accuracy, seen, made, epoch = (float(number) for number in told.groups())
    assert (seen, epoch) == (made, epochs - 1)
    assert made > (5_000 if LONG else 100)
    assert accuracy > (90 if LONG else 30)
    # What the processes take without data is torch, in the driver, in the worker and in what those are forked from.
    without_data = 1.2 * GIGABYTE
    if LONG:
        # Such a run is so short that its peak is not always among the samples.
        small = [run_example(scripts, 4, "image_pipeline.py", "--data-size-gb=0.001", *arguments[1:]) for _ in range(4)]
        without_data = max(memory.peak for _, memory in small)
    assert memory.peak < without_data + GIGABYTE, memory


def test_the_budget_that_the_script_has_set_is_that_of_its_workers(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import ray
        from ray import train
        from ray.train import ScalingConfig
        from ray.train.data_parallel_trainer import DataParallelTrainer

        def loop():
            rows = sum(len(batch["id"]) for batch in train.get_dataset_shard("train").iter_batches())
            limits = ray.data.DataContext.get_current().execution_options.resource_limits
            train.report({"memory": limits.object_store_memory, "rows": rows})

        ray.data.DataContext.get_current().execution_options.resource_limits.object_store_memory = 3e8
        result = DataParallelTrainer(
            loop, scaling_config=ScalingConfig(num_workers=2), datasets={"train": ray.data.range(1000)}
        ).fit()
        print(f"memory={result.metrics['memory']}")
        print(f"rows={result.metrics['rows']}")
        """,
        before=(CARRIL, "as-ray", "--"),
    )
    assert values(output)["rows"] == "500"
    assert values(output)["memory"] == "300000000.0"


def test_the_modules_of_ray_data_are_there(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import carril.data
        import ray.data
        from ray.data.context import DataContext, DatasetContext
        from ray.data.dataset import Dataset
        from ray.data.datasource import Datasource
        from ray.data.iterator import DataIterator

        found = [DataContext, DatasetContext, Dataset, Datasource, DataIterator]
        ours = ["DataContext", "DataContext", "Dataset", "Datasource", "DataIterator"]
        print(f"same={found == [getattr(carril.data, name) for name in ours]}")
        print(f"module={ray.data.context.DataContext is DataContext}")
        """,
        before=(CARRIL, "as-ray", "--"),
    )
    assert values(output) == {"same": "True", "module": "True"}


def test_a_source_as_it_is_written_for_ray(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import numpy as np
        import pyarrow as pa
        import ray
        from ray.data.block import Block, BlockMetadata
        from ray.data.datasource import Datasource, ReadTask

        class Squares(Datasource):
            def __init__(self, n):
                self.n = n

            def estimate_inmemory_data_size(self):
                return 8 * self.n

            def get_read_tasks(self, parallelism, per_task_row_limit=None):
                def block(numbers) -> Block:
                    return pa.table({"n": numbers, "square": numbers**2})

                parts = np.array_split(np.arange(self.n), 3)
                metadata = [BlockMetadata(len(part), 8 * len(part), None, None) for part in parts]
                return [ReadTask(lambda part=part: [block(part)], known) for part, known in zip(parts, metadata)]

        ds = ray.data.read_datasource(Squares(10))
        print(f"sum={sum(row['square'] for row in ds.iter_rows())}")
        """,
        before=(CARRIL, "as-ray", "--"),
    )
    assert values(output) == {"sum": "285"}


def test_a_run_goes_on_behind_what_it_has_read_of_a_large_window(scripts: Scripts) -> None:
    """More rows than are gathered together: the place inside a window is of several parts."""
    output = scripts.run(
        """
        import numpy
        import ray
        from ray import train
        from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
        from ray.train.data_parallel_trainer import DataParallelTrainer

        def loop():
            goes_on = train.get_checkpoint() is not None
            seen = []
            for number, batch in enumerate(train.get_dataset_shard("train").iter_batches(batch_size=4096)):
                seen.append(batch["id"])
                if not goes_on and number == 11:
                    train.report({"rows": 0}, checkpoint=Checkpoint.from_dict({"seen": numpy.concatenate(seen)}))
                    raise RuntimeError("in the middle of the epoch")
            before = train.get_checkpoint().to_dict()["seen"]
            seen = numpy.concatenate([before, *seen])
            train.report({"before": len(before), "rows": len(seen), "different": len(numpy.unique(seen))})

        result = DataParallelTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(failure_config=FailureConfig(max_failures=1)),
            datasets={"train": ray.data.range(100_000).random_shuffle()},
        ).fit()
        for name in ("before", "rows", "different"):
            print(f"{name}={result.metrics[name]}")
        """,
        before=(CARRIL, "as-ray", "--"),
    )
    found = values(output)
    assert (found["before"], found["rows"], found["different"]) == ("49152", "100000", "100000")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_of_the_guide_is_a_script_that_runs(scripts: Scripts, number: int) -> None:
    assert "assert " in BLOCKS[number], "a block says what it comes to"
    scripts.run(BLOCKS[number])
