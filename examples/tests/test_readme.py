"""The snippets of the readme, run as a reader would: each piece of Python as a script, each command that is ours.

Commands that build or install (`make`, `pip`) are what brought the package here, and are not run again.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = ("carril ", "python ")
# What the closing line of each piece of Python has, and what the piece prints itself after that.
PRINTED = (
    (r" finished: 5 reports in ", r"(?m)^32\.0 /"),
    (r" finished: 5 reports, 5 checkpoints in ", r"(?m)^loss 0\.\d+, weights OrderedDict"),
    (r" finished: 2 reports in ", r"(?m)^each of 2 workers has read 5000 of 10,000 rows"),
    (r" finished: 4 of 4 trials done(, \d stopped)? in ", r"(?m)^the best of 4 is {'rate': 0\.5}"),
)


def snippets(language: str) -> list[str]:
    return [body for kind, body in FENCE.findall((ROOT / "README.md").read_text()) if kind == language]


def commands() -> list[str]:
    """The lines of shell snippets that are ours to run, without the comments behind them."""
    lines = [line for body in snippets("sh") for line in body.splitlines() if line.startswith(OURS)]
    return [line.partition(" #")[0].strip() for line in lines]


def run(command: list[str], home: Path, directory: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "PATH": path}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_snippets_to_run() -> None:
    assert len(snippets("python")) == len(PRINTED)
    assert any("as-ray" in line for line in commands())


@pytest.mark.parametrize("number", range(len(snippets("python"))))
def test_a_piece_of_python_runs_as_a_script(number: int, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippets("python")[number])
    output = run([sys.executable, str(script)], tmp_path, tmp_path)
    ended, printed = PRINTED[number]
    assert re.search(ended, output), output
    # The line that the snippet prints itself comes after the closing table.
    assert re.search(printed, output.rpartition("tensorboard --logdir")[2]), output


def test_the_piece_with_pytorch_runs_with_one_worker_too(tmp_path: Path) -> None:
    piece = next(piece for piece in snippets("python") if "prepare_model" in piece)
    script = tmp_path / "snippet.py"
    script.write_text(piece.replace("num_workers=2", "num_workers=1"))
    assert script.read_text() != piece
    assert "weights OrderedDict" in run([sys.executable, str(script)], tmp_path, tmp_path)


def test_every_command_is_one_that_runs(tmp_path: Path) -> None:
    """Those that an example gives for itself are run with the examples."""
    own_lines = [path.read_text() for path in (ROOT / "examples").glob("*.py")]
    for command in commands():
        if not any(f"\nRun it with `{command}`.\n" in text for text in own_lines):
            run(["bash", "-c", command], tmp_path, ROOT)


def test_the_numbers_are_those_of_the_last_bench() -> None:
    run([sys.executable, "scripts/readme_numbers.py", "--check"], ROOT, ROOT)


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text())
    assert links
    missing = sorted({link for link in links if not (ROOT / link).exists()})
    assert missing == []
