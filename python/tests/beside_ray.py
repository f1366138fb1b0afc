"""The scripts of `ray_scripts` beside real Ray: what they print and the files that they leave, field by field.

`make test-long PART=ray` runs it; it is no part of `make test`, because it installs Ray. Each script runs under `as-ray` and
with the Ray of its generation, each in a directory of its own that is its home as well, and every field of both has to be
equal but for those that `ON_PURPOSE` names.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ray_files import Fields, differences, fields
from test_ray_scripts import LAST_LINE, SCRIPTS, run_as_ray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))

from runner.environments import script_environment

# Generations by what stands in a script's name: the Ray that is asked, and which of its two implementations of Train.
# Before 2.4 there is no Ray for Python 3.11, and 2.6 is the last one with the names of 2.0.
GENERATIONS = {
    "1x": ("2.6.3", "0"),
    "20": ("2.6.3", "0"),
    "23": ("2.6.3", "0"),
    "27": ("2.60.0", "0"),
    "260": ("2.60.0", "1"),
}

# What may differ, as patterns of `script field`, each with its reason.
_BEFORE_27 = r"^\w+_(1x|20|23)_\w+\.py .*"
_TRAIN_1 = r"^(train|image)_(20|23|27)_\w+\.py .*"
_TRAIN_2 = r"^(train_260_\w+|tune_260_train)\.py "
_SEARCHERS = r"^tune_(1x_hyperopt|27_optuna|260_own_search)\.py .*"
ON_PURPOSE = {
    r":_?(date|timestamp|time_this_iter_s|time_total_s|time_since_restore)\b": "the clock",
    r":(pid|hostname|node_ip)\b": "the process and the machine",
    r"/(experiment\.json|trials\.jsonl|run\.json|journal/|ranks/|(function|trainer|tuner)\.pkl|searcher-state)": (
        "what a resume of ours reads"
    ),
    r"/(experiment_state|basic-variant-state|search_gen_state|callback-states)-DATE": "what a resume of Ray's reads",
    r"/(\.validate_storage_marker|checkpoint_manager_snapshot\.json)": "what a resume of Ray's reads",
    r"/\.(manifest|trainable)\.json": "what we keep with a checkpoint, which is checked when it is read",
    r"/(\.is_checkpoint|\.metadata\.pkl|\.tune_metadata|_preprocessor)$": "what Ray keeps with a checkpoint",
    r"/params\.pkl": "the config as Python has it: ours is in `tuner.pkl`",
    r":(experiment_id|experiment_tag|warmup_time|timesteps_(total|since_restore)|episodes_total|_training_iteration)\b": (
        "fields that Ray once had: scripts of any generation find theirs"
    ),
    r":should_checkpoint\b": "Ray's word to itself that a report has a checkpoint, which `checkpoint_dir_name` says",
    r":checkpoint_(stall|upload)_s\b": "how long a checkpoint took: ours alone",
    r"/result\.json\[\d+\]:done|/progress\.csv:done\[\d+\]": (
        "a report is in our files before it is decided whether it is the last; `Result.metrics` says it"
    ),
    _BEFORE_27 + r":checkpoint_dir_name\b": "a field since 2.7",
    _BEFORE_27 + r"class_api/.*:checkpoints\[": "Ray numbered the checkpoints of a class by iteration until 2.6",
    _BEFORE_27 + r"air_second:checkpoints\[": "Ray counted on from the checkpoint that a run began with until 2.6",
    _BEFORE_27 + r"ray_results/DATE": "a `Trainable` that a script makes by itself writes no reports with us",
    _SEARCHERS + r":(trial_id|directory)": "ours names the trials of a searcher as those of a grid",
    r"^tune_260_own_search\.py printed:heard": "our searchers hear of the report that ends a trial as of any other",
    r"^tune_23_pbt\.py .*(/pbt_(global|policy)|/checkpoint \d|:checkpoints|:generations|:iterations_since_restore)": (
        "Ray restarts every trial of a synchronous population, ours the one that is replaced"
    ),
    r'^tune_1x_hyperopt\.py ray_results/hyperopt/trial .*"step": 0\.\d{3}': (
        "drawn: HyperOpt is asked for integers such that the outermost are as likely as the others"
    ),
    _TRAIN_1 + r":directory": "a run of ours has one directory, Ray's had a trial inside of it",
    _TRAIN_1 + r"(params\.json|:config):": "Ray's older Train has `train_loop_config` in the config of that trial",
    _TRAIN_2 + r"\S+/(result\.json|progress\.csv|params\.json|events\.out)": "Ray's newer Train keeps no reports",
    _TRAIN_2
    + r".*(:checkpoints\[|:checkpoint_path)": "our checkpoints have numbers, those of Ray's newer Train a time",
    r"^(image_23_end_to_end|train_260_data)\.py .*(/checkpoint \d+/(model\.pt|dict_checkpoint\.pkl):|:running_loss\b)": (
        "trained on rows in the order in which each deals them out"
    ),
    r"^(train_23_failure|tune_23_restore)\.py .*/error\.(txt|pkl)$": "of an attempt that another one followed; ours is in the run's record",
    r"^data_\w+\.py \S+/files$": "blocks that nobody asked for: how many files there are is for each to decide",
}

TIMEOUT_S = 600.0

_used: set[str] = set()


def run_with_ray(name: str, directory: Path) -> str:
    """What a script prints that runs with real Ray."""
    version, is_newest_train = GENERATIONS[name.split("_")[1]]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "CARRIL_", "PYTHONPATH"))}
    # Ray's sockets are in its temporary directory, and the name of a socket may have 107 bytes.
    temporary = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    own = {
        "HOME": str(directory),
        "RAY_TMPDIR": temporary,
        "RAY_TRAIN_V2_ENABLED": is_newest_train,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        # The older Ray reads its own pickles with `torch.load`, which today's torch refuses unless it is asked.
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }
    process = subprocess.Popen(
        [script_environment(version).python, str(SCRIPTS / name)],
        cwd=directory,
        env={**kept, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        # A script that is terminated ends what its Ray has started; what is killed would leave it behind.
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=60.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(temporary, ignore_errors=True)
    assert process.returncode == 0, output[-3000:] + errors[-3000:]
    return output


def read(directory: Path, output: str, name: str) -> Fields:
    """The fields, with the line of the results: workers' lines may come after it."""
    lines = [line for line in output.splitlines() if re.fullmatch(LAST_LINE[name], line)]
    assert lines, f"no line is `{LAST_LINE[name]}`:\n{output[-3000:]}"
    return fields(directory, lines[-1])


# The `Trainer` of 1.x was in Ray until 2.0, of which there is none for Python 3.11.
@pytest.mark.parametrize("name", [name for name in LAST_LINE if not name.startswith("train_1x_")])
def test_the_script_does_the_same_with_ray(name: str, tmp_path: Path) -> None:
    places = [tmp_path / "ours", tmp_path / "theirs"]
    for place in places:
        place.mkdir()
    ours = read(places[0], run_as_ray(name, places[0]), name)
    theirs = read(places[1], run_with_ray(name, places[1]), name)
    found, excused = differences(ours, theirs, ON_PURPOSE, name)
    _used.update(excused)
    assert not found, "\n".join(found)


def test_every_reason_is_needed() -> None:
    """After all scripts: what no longer differs is excused no longer."""
    assert set(ON_PURPOSE) <= _used, "\n".join(sorted(set(ON_PURPOSE) - _used))
