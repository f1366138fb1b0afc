"""Makes what could be published into dist/release, and checks it: `make wheel`.

The wheel is linked against glibc 2.28 by zig, which carries the symbols of every version: a cluster with a system of 2018 runs
it. auditwheel decides whether it may be called manylinux; the symbols of both programs in it are read here as well.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

import build_wheel
import deflate
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "dist" / "release"
TARGET = "x86_64-unknown-linux-gnu"
GLIBC = (2, 28)
PLATFORM = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
MOST_BYTES = 15_000_000
# What every system of that age has; nothing else may be needed.
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
# Stands for cargo in the build: its two commands that link go through cargo-zigbuild, which names the version of glibc in the target.
CARGO = """\
#!/bin/sh
command=$1
shift
case $command in
    build) exec cargo-zigbuild zigbuild --target {target}.{glibc} "$@" ;;
    rustc) exec cargo-zigbuild rustc --target {target}.{glibc} "$@" ;;
    *) exec cargo "$command" "$@" ;;
esac
"""


def run(*command: object, **variables: str) -> None:
    print("make_release:", *command, flush=True)
    environment = {**os.environ, **variables}
    if subprocess.run([str(one) for one in command], cwd=ROOT, env=environment, check=False).returncode != 0:
        sys.exit(f"error: `{' '.join(str(one) for one in command)}` failed")


def build(tools: Path, directory: Path) -> tuple[Path, Path]:
    """The source distribution and the wheel."""
    options = ("--no-build-isolation", "--python", sys.executable, "--out-dir", directory)
    run(tools / "uv", "build", "--quiet", "--sdist", *options, ".")
    cargo = directory / "cargo"
    cargo.write_text(CARGO.format(target=TARGET, glibc=".".join(map(str, GLIBC))))
    cargo.chmod(cargo.stat().st_mode | stat.S_IXUSR)
    build_wheel.build(
        directory,
        CARGO=str(cargo),
        SETUPTOOLS_RUST_CARGO_PROFILE="dist",
        PATH=os.pathsep.join([str(tools), os.environ["PATH"]]),
    )
    (source,), (wheel,) = directory.glob("carril-*.tar.gz"), directory.glob("carril-*.whl")
    return source, wheel


def needed_symbols(file: ELFFile) -> set[tuple[str, tuple[int, ...]]]:
    """The versions of libraries' symbols that a program needs, as (GLIBC, (2, 17))."""
    found = set()
    for section in file.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                names = (version.name for version in versions)
                found |= {(name.partition("_")[0], numbers(name.partition("_")[2])) for name in names}
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


class Smallest:
    """A compressor for `zipfile`: libdeflate's best, whose output every unzip reads. It is a thirtieth smaller than zlib's."""

    def __init__(self, kind: int, level: int | None = None) -> None:
        self._data = bytearray()

    def compress(self, data: bytes) -> bytes:
        self._data += data
        return b""

    def flush(self) -> bytes:
        return bytes(deflate.deflate_compress(bytes(self._data), 12))


def compress(wheel: Path) -> None:
    smaller = wheel.with_suffix(".smaller")
    # The standard library has no other place to say who compresses.
    with (
        mock.patch.object(zipfile, "_get_compressor", Smallest),
        zipfile.ZipFile(wheel) as archive,
        zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for entry in archive.infolist():
            packed.writestr(entry, archive.read(entry))
    smaller.replace(wheel)


def check_programs(wheel: Path) -> None:
    """Extension and command need no newer symbol and no other library than they may, and are stripped."""
    with zipfile.ZipFile(wheel) as archive:
        programs = [name for name in archive.namelist() if re.search(r"\.so$|\.data/scripts/carril$", name)]
        assert len(programs) == 2, programs
        for name in programs:
            with archive.open(name) as opened:
                file = ELFFile(opened)
                newer = {one for one in needed_symbols(file) if one[0] != "GLIBC" or one[1] > GLIBC}
                dynamic = file.get_section_by_name(".dynamic")
                needed = {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
                if newer or needed - LIBRARIES or file.get_section_by_name(".symtab"):
                    sys.exit(
                        f"error: `{name}` needs {sorted(newer)} and {sorted(needed - LIBRARIES)}, or is not stripped"
                    )
                highest = max((one[1] for one in needed_symbols(file)), default=())
                print(f"make_release: {name} needs glibc {'.'.join(map(str, highest))}, {sorted(needed)}")


def main() -> None:
    tools = Path(sys.executable).parent
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        source, wheel = build(tools, Path(temporary))
        path = os.pathsep.join([str(tools), os.environ["PATH"]])
        run(tools / "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "--wheel-dir", OUTPUT, wheel, PATH=path)
        shutil.copy(source, OUTPUT)
    (wheel,) = OUTPUT.glob("carril-*.whl")
    compress(wheel)
    check_programs(wheel)
    if wheel.stat().st_size > MOST_BYTES:
        sys.exit(f"error: `{wheel.name}` has {wheel.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    run(tools / "twine", "check", "--strict", *sorted(OUTPUT.iterdir()))
    for made in sorted(OUTPUT.iterdir()):
        print(f"make_release: {made.relative_to(ROOT)}, {made.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
