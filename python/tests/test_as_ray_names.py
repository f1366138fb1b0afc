"""The package `ray` as it is made from its table: what is there, and what is said of names and arguments that are not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401

import carril.as_ray
from carril._internal.command import find_command
from carril.as_ray.names import MODULES

AS_RAY = (find_command(), "as-ray", "--")
PATH = Path(carril.as_ray.__file__).parent / "path"


def last_lines(source: str) -> str:
    """What Python prints of an error, without the frames. Straight from the interpreter: these scripts train nothing."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={"PYTHONPATH": str(PATH), "CARRIL_AS_RAY": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return re.sub(r"(?s)^Traceback.*?\n(?=\w)", "", done.stderr)


def printed(source: str) -> str:
    environment = {"PYTHONPATH": str(PATH), "CARRIL_AS_RAY": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_one_file_and_a_table() -> None:
    assert [path.name for path in PATH.rglob("*.py")] == ["__init__.py"]
    assert len(MODULES) > 100


def test_importing_ray_and_its_parts_loads_no_framework() -> None:
    source = "import sys, ray, ray.train, ray.tune, ray.data, ray.air; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in printed(source).split()}
    assert not loaded & {"numpy", "torch", "pandas", "pyarrow", "cloudpickle", "asyncio"}


def test_import_ray_alone_loads_neither_the_older_generation_nor_the_tables_of_errors() -> None:
    loaded = set(printed("import sys, ray; print(*sys.modules)").split())
    assert not loaded & {
        "ray.air",
        "ray.train",
        "ray.tune",
        "carril.as_ray.absent",
        "carril.as_ray.generations",
        "json",
    }


def test_a_star_import_brings_no_submodules_along() -> None:
    source = (
        "from ray.train import *; import sys; print('torch' in dir(), ScalingConfig.__name__, 'torch' in sys.modules)"
    )
    assert printed(source).split() == ["False", "ScalingConfig", "False"]


def test_a_module_of_the_table_pickles_by_its_name_and_lists_its_names() -> None:
    source = (
        "import ray.tune.schedulers.pb2 as m, cloudpickle, pickle\n"
        "print(pickle.loads(cloudpickle.dumps(m)) is m, m.__all__, 'PB2' in dir(m), m.PB2.__module__)"
    )
    assert printed(source) == "True ['PB2'] True carril.tune.schedulers.pb2\n"


# What is asked for, and what the error says besides the name.
ABSENT = {
    "import ray.serve": "is not part of carril\nhint: carril serves no models",
    "from ray import serve": "is not part of carril\nhint: carril serves no models",
    "import ray; ray.serve": "is not part of carril\nhint: carril serves no models",
    "import ray.rllib.algorithms.ppo": "reinforcement learning",
    "from ray.tune.search.flaml import CFO": "OptunaSearch",
    "from ray.train.torch import TorchPredictor": "map_batches",
    "from ray.train.lightning import RayDDPStrategy": "is not available yet\nhint: waits for Lightning",
    "from ray.data.preprocessors import StandardScaler": "is not available yet\nhint: waits for preprocessors",
    "import ray; ray.data.read_sql": "is not available yet\nhint: waits for readers",
    "import ray; ray.remote(print)": "is not available yet\nhint: waits for remote functions",
    "from ray.util.queue import Queue": "is not available yet\nhint: waits for remote functions",
    "import ray._private.utils": "internal to Ray",
}


@pytest.mark.parametrize("line", ABSENT)
def test_what_is_absent_says_what_to_use_instead(line: str) -> None:
    assert ABSENT[line] in last_lines(line)


# A name that no Ray has is an ordinary error, with the nearest name.
MISTYPED = {
    "from ray.train import ScalingConfg": "ImportError: cannot import name 'ScalingConfg' from 'ray.train': did you mean 'ScalingConfig'?",
    "from ray import tain": "ImportError: cannot import name 'tain' from 'ray'",
    "import ray.trian": "ModuleNotFoundError: No module named 'ray.trian': did you mean 'train'?",
    "import ray.tune.shedulers": "ModuleNotFoundError: No module named 'ray.tune.shedulers': did you mean 'schedulers'?",
    "from ray import train; train.reprot": "AttributeError: module 'ray.train' has no attribute 'reprot'. Did you mean: 'report'?",
    "import ray; ray.zzz": "AttributeError: module 'ray' has no attribute 'zzz'\n",
}


@pytest.mark.parametrize("line", MISTYPED)
def test_a_mistyped_name_is_an_ordinary_error_with_the_nearest_one(line: str) -> None:
    text = last_lines(line)
    assert text.startswith(MISTYPED[line])
    assert "not available" not in text


ARGUMENTS = {
    "from ray.tune import run; run(print, trial_executor=1)": "`trial_executor` is a parameter of `run` in Ray 1.13 to 2.3",
    "from ray import tune; tune.run(print, loggers=[])": "`loggers` is a parameter of `run` in Ray 1.13",
    "from ray.train.torch import TorchTrainer; TorchTrainer(print, preprocessor=1)": "`preprocessor` is a parameter of `TorchTrainer` in Ray 2.0 to 2.7",
    "from ray.train import RunConfig; RunConfig(storge_path='x')": "did you mean `storage_path`?",
    "from ray.tune import SyncConfig; SyncConfig(upload_dir='s3://x')": "`upload_dir` is a parameter of `SyncConfig` in Ray 1.13 to 2.7; use `storage_path` with a URI",
    "from ray import tune; tune.uniform(0, 1).sample(spec=1)": "`spec` is a parameter of `Domain.sample` in Ray 1.13 to 2.3",
    "import ray.tune; ray.tune.Tuner.restore('x', overwrite_trainable=1)": "`overwrite_trainable` is a parameter of `Tuner.restore` in Ray 2.3",
    "import ray; ray.shutdown(wait_for_processes=True)": "`wait_for_processes` is a parameter of `shutdown` in Ray 2.60",
    "import ray; ray.init(storage='x')": "`storage` is a parameter of `init` in Ray 1.13 to 2.7",
    "import ray; ray.data.read_text('/x', errors='ignore')": "`errors` is a parameter of `read_text` in Ray 1.13 to 2.3",
}


@pytest.mark.parametrize("line", ARGUMENTS)
def test_an_argument_of_another_generation_is_told_with_the_generation(line: str) -> None:
    text = last_lines(line)
    assert f"hint: {ARGUMENTS[line]}" in text


def test_an_argument_of_a_function_of_the_scripts_own_is_left_alone() -> None:
    source = "import ray\ndef run(x): pass\nrun(1, loggers=[])"
    assert last_lines(source) == "TypeError: run() got an unexpected keyword argument 'loggers'\n"


def test_an_argument_of_another_generation_is_told_in_a_worker_too(scripts: Scripts) -> None:
    script = scripts.start(
        """
        import ray
        from ray.train.data_parallel_trainer import DataParallelTrainer

        def loop():
            ray.shutdown(wait_for_processes=True)

        DataParallelTrainer(loop).fit()
        """,
        before=AS_RAY,
    )
    assert script.finish() == 1
    assert "hint: `wait_for_processes` is a parameter of `shutdown` in Ray 2.60" in script.output


def test_the_small_modules_that_scripts_import_are_there() -> None:
    source = """
import ray, ray._version, ray.cloudpickle, ray.air.util
from ray.train.trainer import BaseTrainer, Trainer
from ray.train.torch import TorchTrainer
from ray.tune.search import grid_search
from ray.tune.logger.logger import pretty_print as second
from ray.tune.logger import pretty_print
from ray.util.annotations import Deprecated, PublicAPI, RayDeprecationWarning

@PublicAPI
def one(): return 1

@PublicAPI(stability="beta")
def two(): return 2

@Deprecated(message="x")
def three(): return 3

print(ray._version.version == ray.__version__, ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda: 5))())
print(issubclass(TorchTrainer, BaseTrainer), Trainer.__name__, grid_search([1]), second is pretty_print)
print(one(), two(), three(), issubclass(RayDeprecationWarning, DeprecationWarning))
"""
    assert printed(source).splitlines() == ["True 5", "True Trainer {'grid_search': [1]} True", "1 2 3 True"]


def test_the_tools_of_tune_do_what_ray_s_do() -> None:
    """The expected values are what Ray 2.60 gives."""
    from carril.as_ray import tune_utils as utils

    nested = {"a": {"b": 1, "c": {"d": 2}}, "e": [1, {"f": 2}], "g": {}, 3: 4, "h": {5: 6}}
    assert utils.flatten_dict(nested) == {"e": [1, {"f": 2}], 3: 4, "a/b": 1, "h/5": 6, "a/c/d": 2}
    assert utils.flatten_dict(nested, flatten_list=True)["e/1/f"] == 2
    with pytest.raises(ValueError, match="delimiter"):
        utils.flatten_dict({"a/b": 1}, prevent_delimiter=True)
    assert utils.unflatten_dict({"a/b": 1, "a/c/d": 2}) == {"a": {"b": 1, "c": {"d": 2}}}
    assert utils.unflattened_lookup("a/b/0", {"a": {"b": [7]}}) == 7
    assert utils.unflattened_lookup("a/z", {"a": {}}, default=3) == 3
    with pytest.raises(KeyError):
        utils.unflattened_lookup("a/z", {"a": {}})
    first = {"a": {"b": 1}}
    assert utils.merge_dicts(first, {"a": {"c": 2}, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert first == {"a": {"b": 1}}
    with pytest.raises(Exception, match="unknown key 'y'"):
        utils.deep_update({"a": {"x": 1}}, {"a": {"y": 2}})
    assert utils.deep_update({"a": {"type": 1, "x": 1}}, {"a": {"type": 2}}, False, None, ["a"]) == {"a": {"type": 2}}
    result = {"b": 1, "a": None, "c": {"d": 1.5, "e": [1, 2]}, "config": {"x": 1}, "f": True, "hidden": 1}
    assert utils.pretty_print(result, exclude=["hidden"]) == "b: 1\nc:\n  d: 1.5\n  e:\n  - 1\n  - 2\nf: true\n"


def test_a_gpu_is_waited_for_by_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for `nvidia-smi`, whose second GPU becomes free at the third look."""
    from carril.as_ray.tune_utils import wait_for_gpu

    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/looks\n"
        f"[ $(wc -l < {tmp_path}/looks) -lt 3 ] && used=500 || used=0\n"
        'echo "0, GPU-a, 900, 1000"\necho "1, GPU-b, $used, 1000"\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert wait_for_gpu(delay_s=0) is True
    assert (tmp_path / "looks").read_text().count("x") == 3
    assert wait_for_gpu("GPU-b", delay_s=0) is True
    with pytest.raises(RuntimeError, match="did not become free"):
        wait_for_gpu(0, retry=2, delay_s=0)
    with pytest.raises(ValueError, match="no GPU '7'"):
        wait_for_gpu(7)


def test_an_experiment_is_run_by_run_and_by_run_experiments(scripts: Scripts) -> None:
    output = scripts.run(
        """
        from ray import tune
        from ray.tune import Experiment

        def objective(config):
            tune.report({"loss": config["x"]})

        one = Experiment("one", objective, config={"x": tune.grid_search([3, 1, 2])})
        analysis = tune.run(one, metric="loss", mode="min", verbose=0, config={"x": 9})
        print(f"best={analysis.best_config['x']} of {len(analysis.trials)} in {analysis.experiment_path.rpartition('/')[2]}")
        two = Experiment("two", objective, config={"x": 5}, num_samples=2)
        trials = tune.run_experiments([two], verbose=0)
        print(f"two={[trial.last_result['loss'] for trial in trials]}")
        """,
        before=AS_RAY,
    )
    assert values(output) == {"best": "1 of 3 in one", "two": "[5, 5]"}


def test_the_functions_of_the_first_generation_report_and_know_their_ranks(scripts: Scripts) -> None:
    output = scripts.run(
        """
        from ray import train
        from ray.train import Trainer

        def loop(config):
            for step in range(2):
                train.report(step=step, rank=train.world_rank(), local=train.local_rank(), size=train.world_size())
            train.report({"step": 2}, loss=0.5)
            return train.world_rank()

        trainer = Trainer(backend="torch", num_workers=2)
        trainer.start()
        print(f"ranks={trainer.run(loop, config={})}")
        trainer.shutdown()
        print(f"outside={train.world_rank()} {train.world_size()}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert (found["ranks"], found["outside"]) == ("[0, 1]", "0 1")
    (kept,) = scripts.directory.rglob("result.json")
    reports = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(one["step"], one.get("rank"), one.get("size")) for one in reports[:2]] == [(0, 0, 2), (1, 0, 2)]
    assert (reports[2]["step"], reports[2]["loss"]) == (2, 0.5)
