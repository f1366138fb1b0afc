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
    "train_20_air.py": r"loss fell from 0\.0\d+ to 0\.00\d+",
    "train_23_failure.py": r"resumed at epoch 2 and finished with a loss below 0\.05",
    "train_260_data.py": r"each of 800 rows once an epoch, validation below 0\.05",
    "train_27_directory.py": r"restored at epoch 3",
}


def test_every_script_is_run_here() -> None:
    assert {path.name for path in SCRIPTS.glob("*.py")} == set(LAST_LINE)


@pytest.mark.parametrize("name", LAST_LINE)
def test_the_script_runs_unchanged(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [COMMAND, "as-ray", "--", sys.executable, str(SCRIPTS / name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(LAST_LINE[name], done.stdout.splitlines()[-1]), done.stdout
