"""The package as it is installed: light to import, one wheel for every Python, one dependency, a native command."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Ten times what it takes on a machine that does nothing else.
IMPORT_SECONDS = 0.5


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def imported(statement: str) -> set[str]:
    """The modules that a statement adds to those of an empty script."""
    source = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    return set(run(sys.executable, "-c", source).split())


@pytest.mark.parametrize("statement", ["import carril", "from carril import train", "import carril.exceptions"])
def test_importing_brings_no_framework_along(statement: str) -> None:
    names = {name.partition(".")[0] for name in imported(statement)}
    assert not names & {"numpy", "torch", "pandas", "cloudpickle", "pyarrow", "asyncio"}


def test_import_carril_itself_brings_nothing_but_itself() -> None:
    assert imported("import carril") == {"carril"}


def test_importing_is_quick() -> None:
    source = "import time; began = time.perf_counter(); import carril; print(time.perf_counter() - began)"
    assert min(float(run(sys.executable, "-c", source)) for _ in range(5)) < IMPORT_SECONDS


def test_the_driver_of_a_run_without_torch_never_imports_a_framework(tmp_path: Path) -> None:
    source = (
        "import sys; from carril import train\n"
        "train.DataParallelTrainer(lambda: train.report({'a': 1}), run_config=train.RunConfig(storage_path=sys.argv[1])).fit()\n"
        "print('frameworks', {'numpy', 'torch', 'pandas'} & set(sys.modules))"
    )
    assert "frameworks set()" in run(sys.executable, "-c", source, str(tmp_path))


def wheels() -> list[Path]:
    return sorted((ROOT / "dist").glob("carril-*.whl"))


def test_there_is_one_wheel_for_every_python_and_it_is_small() -> None:
    (wheel,) = wheels()
    assert re.search(r"-cp311-abi3-\w*linux\w*_x86_64\.whl$|-cp311-abi3-\w*linux\w*\.whl$", wheel.name), wheel.name
    assert wheel.stat().st_size < 25_000_000


def test_the_wheel_holds_what_is_needed_and_no_more() -> None:
    (wheel,) = wheels()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    for wanted in (
        "carril/__init__.py",
        "carril/py.typed",
        "carril/_native.pyi",
        "carril/as_ray/bash_env.sh",
        "carril/as_ray/generations.json",
        "carril/as_ray/bin/ray",
        "carril/as_ray/path/ray/__init__.py",
    ):
        assert wanted in names
    assert sum(name.endswith(".abi3.so") for name in names) == 1
    assert sum(bool(re.search(r"\.data/scripts/carril$", name)) for name in names) == 1
    foreign = [name for name in names if not re.match(r"carril(/|-\S+\.(data|dist-info)/)", name)]
    assert foreign == []
    assert not [name for name in names if "test" in name or name.endswith(".rs")]
    requires = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    needed = [one for one in requires if "extra" not in one]
    assert [re.match(r"\w+", one).group() for one in needed] == ["cloudpickle"]
    brought = {re.match(r"\w+", one).group() for one in requires if re.search(r"extra == .ray.", one)}
    assert brought == {"click", "filelock", "fsspec", "numpy", "packaging", "pandas", "pyarrow", "pyyaml", "requests"}
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_the_wheel_has_the_licences_of_all_that_it_contains() -> None:
    (wheel,) = wheels()
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist() if "/licenses/" in name
        }
    assert set(texts) == {"LICENSE", "THIRD-PARTY-LICENSES"}
    assert texts["THIRD-PARTY-LICENSES"] == (ROOT / "THIRD-PARTY-LICENSES").read_text()
    run(sys.executable, "scripts/third_party_licences.py", "--check", cwd=ROOT)


def test_the_crates_can_be_published() -> None:
    """What crates.io would refuse: a crate without a description or licence, or one that needs a crate that is not there."""
    found = json.loads(run("cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", cwd=ROOT))
    public = {one["name"]: one for one in found["packages"] if one["publish"] is None}
    assert {"carril", "carril-cli"} <= set(public)
    assert not set(public) & {"carril-py", "carril-sim", "carril-testkit"}
    for name, package in public.items():
        assert package["description"] and package["license"] == "Apache-2.0", name
        for needed in package["dependencies"]:
            # A dependency of tests that is a path alone is left out of what is published.
            if needed["name"].startswith("carril") and needed["kind"] != "dev":
                assert needed["name"] in public and needed["req"] == f"^{package['version']}", (name, needed["name"])


def test_the_installed_command_is_native_and_of_the_same_version() -> None:
    import carril
    from carril._internal.command import find_command

    command = find_command()
    assert Path(command).read_bytes()[:4] == b"\x7fELF"
    version = importlib.metadata.version("carril")
    assert run(command, "--version").strip() == f"carril {version}"
    assert carril.__version__ == version


def test_the_installed_package_runs_in_another_place(tmp_path: Path) -> None:
    """`pip install --target`: the command is not beside the interpreter."""
    (wheel,) = wheels()
    uv = Path(sys.executable).parent / "uv"
    run(str(uv), "pip", "install", "--quiet", "--offline", "--target", str(tmp_path / "there"), "--no-deps", str(wheel))
    import cloudpickle

    source = (
        "import carril, sys; from carril import train; from carril._internal.command import find_command\n"
        "print(find_command())\n"
        "print('got', train.DataParallelTrainer(lambda: carril.__file__).fit().return_value)"
    )
    path = os.pathsep.join([str(tmp_path / "there"), str(Path(cloudpickle.__file__).parents[1])])
    output = run(sys.executable, "-c", source, env={**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)})
    assert f"got {tmp_path / 'there' / 'carril' / '__init__.py'}" in output


def install_ways() -> list[str]:
    """The source distribution is always made and looked at; it is built, which takes minutes, at full size."""
    return ["made", *(["built"] if os.environ.get("CARRIL_LONG") else [])]


@pytest.mark.parametrize("how_far", install_ways())
def test_the_source_distribution_has_everything_that_a_build_needs(tmp_path: Path, how_far: str) -> None:
    uv = str(Path(sys.executable).parent / "uv")
    build = (uv, "build", "--quiet", "--sdist", "--no-build-isolation", "--python", sys.executable)
    run(*build, "--out-dir", str(tmp_path), str(ROOT), env={**os.environ, "TMPDIR": str(tmp_path)})
    (sdist,) = tmp_path.glob("carril-*.tar.gz")
    listing = run("tar", "-tzf", str(sdist)).split()
    inside = {name.partition("/")[2] for name in listing}
    crates = {
        f"{path.relative_to(ROOT)}"
        for path in (ROOT / "crates").rglob("*")
        if path.suffix in (".rs", ".toml", ".proto")
    }
    assert crates <= inside, sorted(crates - inside)
    files = {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE", "THIRD-PARTY-LICENSES"}
    assert files <= inside
    assert not [name for name in inside if name.startswith(("target/", ".venv/", "dist/"))]
    if how_far == "built":
        venv = tmp_path / "venv"
        run(sys.executable, "-m", "venv", str(venv))
        run(str(venv / "bin" / "pip"), "install", str(sdist))
        source = (
            "import carril; from carril import train; print(train.DataParallelTrainer(lambda: 5).fit().return_value)"
        )
        output = run(str(venv / "bin" / "python"), "-c", source, env={**os.environ, "HOME": str(tmp_path)})
        assert output.rstrip().endswith("5")
        assert run(str(venv / "bin" / "carril"), "--version").startswith("carril ")
        listed = json.loads(run(str(venv / "bin" / "pip"), "list", "--format=json"))
        assert {one["name"] for one in listed} <= {"carril", "cloudpickle", "pip", "setuptools"}
