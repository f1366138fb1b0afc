"""Errors and results that help: what is missing is named with what there is, and what is printed is short."""

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture  # noqa: F401
from runs import fit
from test_notebook import Notebook, notebook_fixture  # noqa: F401

from carril.train import CheckpointConfig, Result
from carril.train._console_curve import _POINTS, Curves, svg_of
from carril.train._result import Metrics


def test_a_metric_that_is_not_there_says_which_was_meant() -> None:
    metrics = Metrics({"loss": 0.5, "accuracy": 1.0, "deep": {"er": 1}, "training_iteration": 3})
    with pytest.raises(
        KeyError, match=r"no metric `los` was reported; there are `loss`, (.*)\nhint: did you mean `loss`"
    ) as error:
        metrics["los"]
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with pytest.raises(KeyError, match=r"no metric `zzz` was reported; there are `loss`, `accuracy`, `deep`"):
        metrics["zzz"]
    with pytest.raises(KeyError, match="did you mean `training_iteration`"):
        metrics["training_iterations"]
    assert metrics.get("los") is None and "los" not in metrics


def test_metrics_are_a_dictionary_wherever_they_go() -> None:
    metrics = Metrics({"loss": 0.5, "deep": {"er": 1}})
    for other in (pickle.loads(pickle.dumps(metrics)), copy.copy(metrics), copy.deepcopy(metrics), Metrics(metrics)):
        assert other == metrics == {"loss": 0.5, "deep": {"er": 1}}
        with pytest.raises(KeyError, match="did you mean `loss`"):
            other["los"]
    assert json.loads(json.dumps(metrics)) == metrics


@pytest.mark.usefixtures("head")
def test_a_result_is_printed_in_a_line(storage: Path) -> None:
    def function() -> None:
        from carril import train

        for step in range(5):
            metrics = {"loss": 1 / 3, "step": step, "text": "x" * 500, **{f"m{at}": at for at in range(20)}}
            train.report(metrics, checkpoint=train.Checkpoint.from_dict({"step": step}))

    result = fit(function, storage, workers=1, name="short", checkpoint_config=CheckpointConfig(num_to_keep=2))
    text = repr(result)
    assert "\n" not in text and len(text) < 600, text
    assert text.startswith("Result(name='short', metrics={'loss': 0.3333, 'step': 4, ") and "more}" in text
    assert "checkpoint='checkpoint_000004'" in text and f"path={str(storage / 'short')!r}" in text
    assert "pid" not in text and "error" not in text
    failed = Result(error=ValueError("first line\nsecond line"))
    assert repr(failed) == "Result(metrics=None, error=ValueError: first line)"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('config["lr"]', "KeyError: 'lr'; `config` has `rate`, `model`"),
        ('config["model"]["widht"]', "KeyError: 'widht'; did you mean `width`? `config['model']` has `width`, `depth`"),
        ('{"a": 1}["b"]', "KeyError: 'b'"),
        ('raise KeyError("lr")', "KeyError: 'lr'"),
    ],
)
def test_a_missing_key_of_the_config_lists_the_keys(scripts: Scripts, line: str, told: str) -> None:
    script = scripts.start(f"""
        from carril import train
        def loop(config):
            {line}
        config = {{"rate": 0.1, "model": {{"width": 1, "depth": 2}}}}
        train.DataParallelTrainer(loop, train_loop_config=config, run_config=train.RunConfig(name="keys")).fit()
    """)
    assert script.finish() == 1, script.output
    assert re.search(rf"`keys` failed .*: rank 0: {re.escape(told)} at \S*script\.py:3\n", script.output), script.output


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_a_missing_column_in_a_function_on_batches_lists_the_columns(scripts: Scripts, batch_format: str) -> None:
    script = scripts.start(f"""
        from carril import data
        def change(batch):
            return {{"x": batch["lable"]}}
        rows = data.from_items([{{"label": 1, "image": 2}}])
        rows.map_batches(change, batch_format="{batch_format}").take_all()
    """)
    assert script.finish() == 1, script.output
    assert "did you mean `label`? `batch` has `label`, `image`" in script.output, script.output


def test_how_many_checkpoints_were_saved_is_said(scripts: Scripts) -> None:
    source = """
        from carril import train
        def loop():
            latest = train.get_checkpoint()
            for step in range(latest.to_dict()["step"] + 1 if latest else 0, 6):
                train.report({"step": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))
                if latest is None and step == 3:
                    raise RuntimeError("on purpose")
        config = train.CheckpointConfig(num_to_keep=2)
        train.DataParallelTrainer(loop, run_config=train.RunConfig(name="kept", checkpoint_config=config)).fit()
    """
    assert scripts.start(source).finish() == 1
    script = scripts.start(source)
    assert script.finish() == 0, script.output
    assert "`kept` finished: 6 reports, 2 of 6 checkpoints kept in" in script.output, script.output


CELL = """
from carril import train

def loop(config):
    for step in range(20):
        train.report({"loss": 1 / (step + 1), "epoch": step})
        import time; time.sleep(0.12)
    return config["rate"]

train.DataParallelTrainer(loop, train_loop_config={"lr": 1}, run_config=train.RunConfig(name="cell")).fit()
"""


def test_an_error_in_a_notebook_names_the_cell_and_shows_the_line(notebook: Notebook) -> None:
    notebook.run("1 + 1")
    import nbclient

    with pytest.raises(nbclient.exceptions.CellExecutionError) as error:
        notebook.run(CELL)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", str(error.value))
    assert 'cell In[2], line 7: return config["rate"]' in shown, shown
    assert "KeyError: 'rate'; `config` has `lr`" in shown
    # The worker's own traceback has the line too.
    assert shown.count('return config["rate"]') >= 2, shown


def test_a_run_in_a_notebook_has_curves(notebook: Notebook) -> None:
    shown = notebook.run(CELL.replace('config["rate"]', "None").replace("train.DataP", "result = train.DataP"))
    assert "<svg" in shown["text/html"] and "<polyline" in shown["text/html"], shown


def test_curves_are_bounded_and_keep_the_shape() -> None:
    curves = Curves()
    for step in range(100_000):
        curves.add(step, {"loss": 1 / (step + 1), "epoch": step, "flag": True, "nan": float("nan"), "name": "x"})
    shown = curves.shown()
    assert list(shown) == ["loss", "epoch"]
    assert all(_POINTS // 4 <= len(points) <= _POINTS for points in shown.values())
    assert all(points == sorted(points, key=lambda point: point[0]) for points in shown.values())
    text = svg_of(curves)
    assert text.count("<polyline") == 2 and len(text) < 12_000
    assert svg_of(Curves()) == ""


def test_a_curve_of_odd_values_is_drawn_or_left_out() -> None:
    for values in ([1.0], [2.0, 2.0], [float("nan"), float("inf")], [1e308, -1e308], [0, 1 << 70]):
        curves = Curves()
        for step, value in enumerate(values):
            curves.add(step, {"<x>": value})
        text: Any = svg_of(curves)
        assert "nan" not in text and "<x>" not in text
