"""The environments of the rivals, outside the clone, each with compiled bytecode.

One has Ray and torch, one boto3, one Optuna, one all that reads data (Ray Data, pyarrow, Hugging Face's datasets, torch
and Pillow), and one our wheel and torch; torchrun is the one of our environment. The tests that run scripts beside Ray have
theirs from here too, one for each version. They are made once and kept in
`${CARRIL_CACHE:-~/.cache/carril}/bench-<hash>`; the rivals are brought to their newest versions at each run, and our
wheel is installed again when it has changed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent
# torch complains without numpy, and Ray writes no TensorBoard files without tensorboardX.
_RAY = ("ray[train]", "torch", "numpy", "tensorboardX")
_OURS = ("torch", "numpy")
_BOTO3 = ("boto3",)
_OPTUNA = ("optuna",)
# Without aiohttp, threads of Ray Data that look for it at the same time fail in Parquet of several files.
_DATA = ("ray[data,train]", "torch", "numpy", "pyarrow", "pandas", "datasets", "pillow", "aiohttp")
# What the scripts of `python/tests/ray_scripts` import. The older Ray needs packages of its time.
_SCRIPTS = ("torch", "optuna", "hyperopt", "scikit-learn", "pillow", "tensorboardX", "aiohttp")
_OF_ITS_TIME = {
    "2.6.3": (
        "ray[air,tune,data]==2.6.3",
        "async-timeout",
        "numpy<2",
        "pandas<2.2",
        "pyarrow<14",
        "pydantic<2",
        "setuptools<70",
    ),
}


class EnvironmentProblem(Exception):
    """An environment could not be made."""


@dataclass
class Environment:
    """A virtual environment and what is in it."""

    directory: Path
    versions: dict[str, str]

    @property
    def python(self) -> str:
        return str(self.directory / "bin" / "python")

    def command(self, name: str) -> str:
        return str(self.directory / "bin" / name)


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise EnvironmentProblem(f"`uv` is not there\nhint: `{sys.executable} -m pip install uv`")
    return found


def _call(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentProblem(f"`{' '.join(command)}` failed:\n{done.stdout[-3000:]}")


def cache() -> Path:
    """Where environments and the data of benches are kept."""
    return Path(os.environ.get("CARRIL_CACHE") or Path.home() / ".cache" / "carril")


def _place(requirements: tuple[str, ...]) -> Path:
    key = json.dumps([sys.version_info[:2], sys.base_prefix, requirements])
    return cache() / f"bench-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _make(requirements: tuple[str, ...], upgrade: str | None) -> Path:
    directory = _place(requirements)
    python = str(directory / "bin" / "python")
    install = [_uv(), "pip", "install", "--quiet", "--compile-bytecode", "-p", python]
    complete = directory / "complete"
    if not complete.exists():
        print(f"making {directory} with {', '.join(requirements)} …", file=sys.stderr)
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        _call(_uv(), "venv", "--quiet", "-p", sys.executable, str(directory))
        _call(*install, *requirements)
        complete.touch()
    elif upgrade is not None:
        try:
            _call(*install, "--upgrade-package", upgrade, *requirements)
        except EnvironmentProblem as problem:
            print(f"note: `{upgrade}` was not brought up to date: {problem}", file=sys.stderr)
    return directory


def _versions(directory: Path, names: tuple[str, ...]) -> dict[str, str]:
    program = (
        "import importlib.metadata as m, json, platform;"
        f"print(json.dumps({{'python': platform.python_version(), **{{n: m.version(n) for n in {names!r}}}}}))"
    )
    output = subprocess.run([str(directory / "bin" / "python"), "-c", program], check=True, stdout=subprocess.PIPE)
    return dict(json.loads(output.stdout))


def ray_environment() -> Environment:
    """The newest Ray on PyPI, with torch."""
    directory = _make(_RAY, upgrade="ray")
    return Environment(directory, _versions(directory, ("ray", "torch")))


def boto3_environment() -> Environment:
    """The newest boto3 on PyPI."""
    directory = _make(_BOTO3, upgrade="boto3")
    return Environment(directory, _versions(directory, ("boto3",)))


def optuna_environment() -> Environment:
    """The newest Optuna on PyPI."""
    directory = _make(_OPTUNA, upgrade="optuna")
    return Environment(directory, _versions(directory, ("optuna",)))


def data_environment() -> Environment:
    """The newest Ray on PyPI, with whatever else reads data."""
    directory = _make(_DATA, upgrade="ray")
    return Environment(directory, _versions(directory, ("ray", "pyarrow", "datasets", "torch", "pillow")))


def script_environment(version: str) -> Environment:
    """A Ray of one version, with what scripts that are written for it use."""
    ray = _OF_ITS_TIME.get(version, (f"ray[data,train,tune]=={version}", "numpy", "pandas", "pyarrow"))
    directory = _make((*ray, *_SCRIPTS), upgrade=None)
    return Environment(directory, _versions(directory, ("ray", "torch")))


def newest_wheel() -> Path:
    wheels = sorted((_ROOT / "dist").glob("carril-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise EnvironmentProblem(f"there is no wheel in `{_ROOT / 'dist'}`\nhint: `make wheel` builds one")
    return wheels[-1]


def our_environment() -> Environment:
    """Our newest wheel, with torch."""
    wheel = newest_wheel()
    directory = _make(_OURS, upgrade=None)
    marker = directory / "wheel.sha256"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if not marker.exists() or marker.read_text() != digest:
        python = str(directory / "bin" / "python")
        install = [_uv(), "pip", "install", "--quiet", "--compile-bytecode", "-p", python]
        _call(*install, "--reinstall-package", "carril", str(wheel))
        marker.write_text(digest)
    return Environment(directory, _versions(directory, ("carril", "torch")))
