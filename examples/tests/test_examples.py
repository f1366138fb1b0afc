"""Every example, run as its own docstring says, in a home of its own. A new example without a line here is an error."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1]
COMMAND = re.compile(r"^Run it with `(.*)`\.$", re.MULTILINE)

# What the last lines of each example must say. The files that other examples run are named beside those.
EXPECTED = {
    "callbacks.py": r"rank 0 ended at loss 0\.1216; the best was 0\.0115 of rank 1",
    "data_parquet.py": r"loss 0\.0\d+; rows of each epoch, through a failure in the second: \[20000, 20000, 20000\]",
    "data_ray_csv.py": r"accuracy 9\d\.\d% on 1600 rows, after 3 epochs of 6400 rows",
    "dataloader_workers.py": r"loss 0\.\d+: each worker saw 1024 of 2048 points in each epoch",
    "digits.py": r"accuracy 9\d\.\d% with 4 tensors of weights in ",
    "image_pipeline.py": r"accuracy \d\d\.\d%, loss \d\.\d+ on (\d+) of \1 pictures in epoch 0, ",
    "minimal.py": r"value 32\.0 after 5 reports: rank 0 of 2 got to 32\.0",
    "ray_fashion_mnist.py": r"last result: loss 0\.\d+ in iteration 4",
    "ray_fashion_mnist_v2.py": r"accuracy 9\d\.\d%, loss 0\.\d+, kept in .*ray_results",
    "ray_tune_digits.py": r"best trial test set accuracy: 9\d\.\d% of 6 trials",
    "ray_tune_optuna.py": r"accuracy 9\d\.\d% of 20 trials, with .*\nthe first one had 1\d\.\d%",
    "ray_tune_pbt.py": r"accuracy 9\d\.\d% after 20 steps, the worst [89]\d\.\d%; the best checkpoint has 4 tensors",
    "torchrun_style.py": r"(?s)2 ranks agree: loss 0\.\d+.*finished torchrun_script\.py: True",
    "tune_asha.py": r"accuracy 9\d\.\d% with .*\n12 trials took (\d\d|[12]\d\d) epochs instead of 324",
    "tune_trainer.py": r"the best of 3 has lr 0\.1: its network reads 9\d\.\d% of the digits",
}
RUN_BY_ANOTHER = {"torchrun_script.py": "torchrun_style.py"}


def run(command: list[str], home: Path) -> str:
    """Runs a command of the installed package from the root of the repository."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "PATH": path}
    done = subprocess.run(
        command, cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert there == set(EXPECTED) | set(RUN_BY_ANOTHER)
    for name, other in RUN_BY_ANOTHER.items():
        assert name in (EXAMPLES / other).read_text()


@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_runs_as_it_says(name: str, tmp_path: Path) -> None:
    (line,) = COMMAND.findall((EXAMPLES / name).read_text())
    output = run(line.split(), tmp_path)
    assert re.search(EXPECTED[name], output), output
    # Its files are where runs are kept, and nothing else is left but the cache that torch makes for itself, and what
    # `Checkpoint.to_directory()` has given to the script.
    kept = "ray_results" if "as-ray" in line else "carril_results"
    others = ("carril-", "carril_checkpoint_", "torchinductor_", ".")
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(others)}
    assert left == {kept}, left
    (run_directory,) = (tmp_path / kept).iterdir()
    for directory in trials_of(run_directory) or [run_directory]:
        assert (directory / "result.json").stat().st_size > 0


def trials_of(directory: Path) -> list[Path]:
    """The directories of an experiment's trials; none where this is no experiment."""
    if not (directory / "experiment.json").exists():
        return []
    lines = (directory / "trials.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if line]
    return [directory / event["directory"] for event in events if event["event"] == "made"]


def test_a_ray_script_runs_in_its_short_form_from_a_login_shell(tmp_path: Path) -> None:
    command = f"{sys.executable} examples/ray_fashion_mnist.py --smoke-test"
    output = run(["carril", "as-ray", "--", "bash", "-lc", command], tmp_path)
    assert re.search(r"last result: loss \d\.\d+ in iteration 1", output), output


def test_the_torchrun_script_runs_with_torchrun_as_well(tmp_path: Path) -> None:
    """It is a script for torchrun, and not one of ours in disguise."""
    output = run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "examples/torchrun_script.py"],
        tmp_path,
    )
    assert "2 ranks agree: loss 0." in output
