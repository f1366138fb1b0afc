"""A notebook as the driver: functions of its cells travel, output comes into the cell, interrupting stops the run."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat
import pytest
from driver_scripts import PATIENCE, Scripts, scripts_fixture, wait_until  # noqa: F401

TRAIN = """
from carril import train

FACTOR = 3

def loop(config):
    print("in the worker", train.get_context().get_world_rank())
    for step in range(config["steps"]):
        train.report({"value": FACTOR * step})

trainer = train.DataParallelTrainer(
    loop,
    train_loop_config={"steps": 4},
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(name="from_a_notebook"),
)
result = trainer.fit()
"""

WAIT = """
import os, time
def wait():
    open(f"up-{os.environ['RANK']}", "w").close()
    time.sleep(1000)
try:
    train.DataParallelTrainer(wait, scaling_config=train.ScalingConfig(num_workers=2)).fit()
except KeyboardInterrupt:
    print("stopped by the button")
"""

ASYNC = """
import asyncio
second = await asyncio.to_thread(train.DataParallelTrainer(lambda: 17).fit)
print(second.return_value)
"""


class Notebook:
    """A running kernel, and the cells that were executed in it."""

    def __init__(self, scripts: Scripts) -> None:
        notebook = nbformat.v4.new_notebook()
        self._cells = notebook.cells
        self.client = nbclient.NotebookClient(
            notebook,
            timeout=int(PATIENCE),
            kernel_name="python3",
            resources={"metadata": {"path": str(scripts.directory)}},
        )
        self._environment = scripts.environment()
        self._context = self.client.setup_kernel(env=self._environment)
        self._context.__enter__()

    def run(self, source: str) -> dict[str, str]:
        """What a cell has shown: its output, and its last value as html or as text."""
        cell = nbformat.v4.new_code_cell(source)
        self._cells.append(cell)
        self.client.execute_cell(cell, len(self._cells) - 1)
        shown: dict[str, str] = {"text": ""}
        for output in cell.outputs:
            if output.output_type == "stream":
                shown["text"] += output.text
            else:
                shown.update(output.get("data", {}))
        return shown

    def close(self) -> None:
        self._context.__exit__(None, None, None)


@pytest.fixture(name="notebook")
def notebook_fixture(scripts: Scripts, tmp_path: Path) -> Iterator[Notebook]:
    made = Notebook(scripts)
    yield made
    made.close()


def test_a_notebook_trains_shows_and_goes_on(notebook: Notebook) -> None:
    shown = notebook.run(TRAIN)
    assert "(rank 0) in the worker 0" in shown["text"]
    assert "(rank 1) in the worker 1" in shown["text"]
    assert "`from_a_notebook` finished: 4 reports" in shown["text"]
    shown = notebook.run("result")
    assert "value" in shown["text/html"]
    assert notebook.run("result.metrics['value']")["text/plain"] == "9"
    # A cell that runs in an event loop, as all of them do, can also wait for a run in a thread.
    assert "17" in notebook.run(ASYNC)["text"]


def test_interrupting_a_cell_stops_the_run_and_not_the_notebook(notebook: Notebook, scripts: Scripts) -> None:
    notebook.run("from carril import train")

    def interrupt_when_up() -> None:
        wait_until(
            lambda: all(os.path.exists(scripts.directory / f"up-{rank}") for rank in (0, 1)), "both workers to be up"
        )
        os.killpg(notebook.client.km.provisioner.pid, signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_up)
    thread.start()
    shown = notebook.run(WAIT)
    thread.join()
    assert "stopped by the button" in shown["text"]
    assert notebook.run("1 + 1")["text/plain"] == "2"


MAP = """
from carril import data, train

def broken(batch):
    return {"y": batch["id"].nothing()}

try:
    data.range(10).map_batches(broken).take_all()
except Exception as error:
    print("DIRECT", str(error).splitlines()[0])

def loop():
    for batch in train.get_dataset_shard("train").iter_batches():
        pass

try:
    train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=1),
        datasets={"train": data.range(10).map_batches(broken)},
    ).fit()
except Exception as error:
    print("TRAINED", str(error).splitlines()[0])
"""


def test_an_error_of_a_function_on_data_names_the_cell_and_shows_the_line(notebook: Notebook) -> None:
    shown = notebook.run(MAP)["text"]
    place = 'failed at cell In[1], line 4: return {"y": batch["id"].nothing()}'
    for way in ("DIRECT", "TRAINED"):
        (line,) = [line for line in shown.splitlines() if line.startswith(way)]
        assert place in line, shown
