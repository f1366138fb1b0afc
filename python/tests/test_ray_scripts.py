"""Scripts as people have them for Ray, of several generations, run unchanged under `carril as-ray`.

Each script of `ray_scripts` checks its own results and prints a line at the end, which is compared with the one that is
expected here. A new script without a line here is an error.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "ray_scripts"
COMMAND = str(Path(sys.executable).with_name("carril"))

LAST_LINE = {
    "data_260_pipeline.py": (
        r'\{"files": \{"csv": \[100, 304\.714\], "json": \[100, 304\.714\], "parquet": \[100, 304\.714\]\}, '
        r'"tested": \[10, 10, 5\], "groups": \[14, 14, 14, 14, 14, 15, 15\], "counts": \[37, 37\]\}'
    ),
    "data_27_inference.py": r'\{"rows": 160, "best": 13, "mean": 10\.4847, "files": 2\}',
    "image_23_end_to_end.py": r'\{"classified": true, "tested": 24, "seen": 48\}',
    "train_1x_trainer.py": r'\{"workers": 2, "losses": \[0\.155, 0\.109, 0\.088, 0\.07, 0\.056, 0\.045\]\}',
    "train_20_air.py": r"loss fell from 0\.0\d+ to 0\.00\d+",
    "train_23_failure.py": r"resumed at epoch 2 and finished with a loss below 0\.05",
    "train_260_checkpoints.py": r"steps 0 to 3, then 4 to 7",
    "train_260_data.py": r"each of 800 rows once an epoch, validation below 0\.05",
    "train_260_resume.py": r'\{"kept": \["epoch_3", "epoch_4", "epoch_5"\], "starts": \[2, 4, 4\], "loss": 0\.0126\}',
    "train_27_ddp.py": r'\{"tested": 398, "accuracy": 0\.[89]\d?\}',
    "train_27_directory.py": r"restored at epoch 3",
    "tune_1x_asha.py": r'\{"lr": 0\.01, "accuracy": 1\.0, "trials": 4\}',
    "tune_1x_class.py": r'\{"lr": 1\.0, "accuracy": 0\.99, "iterations": \[4, 6, 6\], "restored_to": 8\}',
    "tune_1x_hyperopt.py": r'\{"losses": \[0\.214045, 0\.024982\], "trials": 6\}',
    "tune_20_trainer.py": r'\{"losses": \{"0\.1": 0\.\d+, "0\.01": 1\.\d+, "0\.0001": 3\.\d+\}, "bias": -0\.9\d?\}',
    "tune_20_tuner.py": (
        r'\{"best": \[0\.1, 0\.0\], "losses": \{"0\.001 0\.0": 4\.0944, "0\.1 0\.0": 0\.0162, '
        r'"0\.001 1\.0": 4\.0999, "0\.1 1\.0": 1\.2937\}, "error": 0\.0152\}'
    ),
    "tune_23_pbt.py": r'\{"lrs": \[0\.125, 0\.125\], "losses": \[0\.00348, 0\.00348\], "lr": 0\.125\}',
    "tune_23_restore.py": r'\{"resumed_at": 2, "roots": \{"2": 1\.26, "27": 3\.063, "8": 2\.0\}\}',
    "tune_260_asha.py": (
        r'\{"stumps": \{"0\.6": 27, "0\.01": 3, "0\.001": 3, "0\.3": 27\}, "best": 0\.3, "accuracy": 0\.9527\}'
    ),
    "tune_260_own_search.py": (
        r'\{"xs": \[2\.0, 6\.0, 1\.0, 3\.0, 2\.5, 3\.5, 2\.25, 2\.75, 2\.625, 2\.875\], '
        r'"steps": \[4, 2, 2, 4, 4, 4, 4, 4, 4, 4\], "best": 3\.0, "heard": 3\d\}'
    ),
    "tune_260_train.py": r'\{"accuracy": 0\.9\d?, "hidden": \{"1": 1, "16": 16\}, "trials": 2\}',
    "tune_27_callbacks.py": r'\{"terms": \{"True": 8, "False": 11\}, "error": 0\.008812\}',
    "tune_27_optuna.py": r'\{"drawn": \[\[0\.1, 0\.0, "none"\](, \[[^]]+\]){4}\], "accuracy": 0\.9\d+\}',
}


def test_every_script_is_run_here() -> None:
    assert {path.name for path in SCRIPTS.glob("*.py")} == set(LAST_LINE)


def run_as_ray(name: str, directory: Path) -> str:
    """What a script prints that runs in a directory, which is its home as well."""
    done = subprocess.run(
        [COMMAND, "as-ray", "--", sys.executable, str(SCRIPTS / name)],
        cwd=directory,
        env={**os.environ, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", LAST_LINE)
def test_the_script_runs_unchanged(name: str, tmp_path: Path) -> None:
    output = run_as_ray(name, tmp_path)
    assert re.fullmatch(LAST_LINE[name], output.splitlines()[-1]), output
