"""`carril as-ray --install`: in an environment of its own, `python script.py` and `ray` are carril's with nothing in front."""

import os
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import os
import ray
from ray import train
from ray.train.data_parallel_trainer import DataParallelTrainer

def loop():
    import ray
    train.report({"worker": "carril" in ray.__file__, "as_ray": os.environ["CARRIL_AS_RAY"]})

result = DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2)).fit()
print("metrics", result.metrics, "in", os.path.basename(os.path.dirname(result.path)))
"""


class Environment:
    """A virtual environment with our wheel, and a home directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        venv = directory / "venv"
        uv = str(Path(sys.executable).parent / "uv")
        (wheel,) = (ROOT / "dist").glob("carril-*.whl")
        self._run(uv, "venv", "--quiet", "--python", sys.executable, str(venv))
        self.python = str(venv / "bin" / "python")
        self._run(uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", self.python, str(wheel))
        (self.site,) = (venv / "lib").glob("python*/site-packages")
        (self.site / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
        self.bin = venv / "bin"

    def _run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "TMPDIR": str(self.directory), **variables}
        return subprocess.run(command, env=kept, capture_output=True, text=True, timeout=120, cwd=self.directory)

    def run(self, *command: str, code: int = 0) -> str:
        done = self._run(*command, PATH=f"{self.bin}:{os.environ['PATH']}", VIRTUAL_ENV=str(self.bin.parent))
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def files(self) -> set[str]:
        top = [self.site, self.bin]
        return {str(path) for directory in top for path in directory.iterdir() if path.name != "__pycache__"}

    def pretend_ray(self) -> None:
        """A package that looks as if Ray were installed."""
        (self.site / "ray").mkdir()
        (self.site / "ray" / "__init__.py").write_text("print('the real one')\n")
        (self.site / "ray-1.2.3.dist-info").mkdir()
        (self.site / "ray-1.2.3.dist-info" / "METADATA").write_text("Name: ray\nVersion: 1.2.3\n")
        (self.bin / "ray").write_text("#!/bin/sh\necho the real command\n")
        (self.bin / "ray").chmod(0o755)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_a_script_and_a_batch_script_need_nothing_in_front(environment: Environment) -> None:
    before = environment.files()
    assert "No module named 'ray'" in environment.run("python", "-c", "import ray", code=1)
    assert str(environment.site) in environment.run("carril", "as-ray", "--install")
    (environment.directory / "script.py").write_text(SCRIPT)
    (environment.directory / "job.sh").write_text("set -eu\nray --version\npython script.py\n")
    output = environment.run("bash", "job.sh")
    assert "ray, version 2." in output
    assert "metrics {'worker': True, 'as_ray': '1'} in ray_results" in output
    # A program that does not import it is not under `as-ray`.
    assert environment.run("python", "-c", "import carril, os; print(os.environ.get('CARRIL_AS_RAY'))") == "None\n"
    environment.run("carril", "as-ray", "--install")
    environment.run("carril", "as-ray", "--uninstall")
    assert environment.files() == before
    assert "No module named 'ray'" in environment.run("python", "-c", "import ray", code=1)
    assert "nothing was removed" in environment.run("carril", "as-ray", "--uninstall")


def test_it_wins_over_an_installed_ray_says_so_once_and_leaves_it_as_it_was(environment: Environment) -> None:
    environment.pretend_ray()
    before = environment.files()
    assert "Ray 1.2.3 is installed there too" in environment.run("carril", "as-ray", "--install")
    (environment.directory / "script.py").write_text(SCRIPT)
    output = environment.run("python", "script.py")
    assert "'worker': True" in output
    assert "the real one" not in output and "--uninstall" not in output
    assert "ray, version 2." in environment.run("ray", "--version")
    environment.run("carril", "as-ray", "--uninstall")
    assert environment.files() == before
    assert environment.run("python", "-c", "import ray") == "the real one\n"
    assert environment.run("ray", "--version") == "the real command\n"


def test_a_ray_that_is_installed_later_is_told_of_once(environment: Environment) -> None:
    environment.run("carril", "as-ray", "--install")
    environment.pretend_ray()
    line = ("python", "-c", "import ray; print('ours', 'carril' in ray.__file__)")
    first, second = environment.run(*line), environment.run(*line)
    assert "ours True" in first and "not the Ray in" in first
    assert second == "ours True\n"


def test_a_file_of_the_scripts_own_is_left_alone(environment: Environment) -> None:
    environment.run("carril", "as-ray", "--install")
    (environment.directory / "ray.py").write_text("print('mine')\n")
    assert environment.run("python", "-c", "import ray") == "mine\n"


def test_an_environment_that_has_lost_carril_starts_without_a_word(environment: Environment) -> None:
    environment.run("carril", "as-ray", "--install")
    (environment.site / "carril").rename(environment.directory / "gone")
    assert environment.run("python", "-c", "print('fine')") == "fine\n"


@pytest.mark.parametrize(
    "arguments", [("--install", "--uninstall"), ("--install", "--", "true"), ("--num-cpus", "2", "--install")]
)
def test_bad_usage_is_an_error(environment: Environment, arguments: tuple[str, ...]) -> None:
    assert environment.run("carril", "as-ray", *arguments, code=2).startswith("error: ")
