"""Where the native `carril` command is: the one that was installed with this package.

A wheel puts it into the scripts directory of the environment, whose place depends on how the environment was made.
The usual places are looked at first, since the installer's own record is slow to read.
"""

import os
import sys
from collections.abc import Iterator

from carril.exceptions import CarrilError


def find_command() -> str:
    """The path of the native command, or an error that lists where it was looked for."""
    looked: list[str] = []
    for directory in _directories():
        if directory in looked:
            continue
        looked.append(directory)
        candidate = os.path.join(directory, "carril")
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    raise CarrilError(
        f"the native command `carril` is not in {', '.join(f'`{directory}`' for directory in looked)}",
        code="not-found",
        origin="infrastructure",
        hints=["install the package again: `pip install --force-reinstall carril`"],
    )


def _directories() -> Iterator[str]:
    # Not the real path: in a virtual environment the interpreter is a link, and the scripts are beside the link.
    yield os.path.dirname(os.path.abspath(sys.executable))
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # `pip install --target` and `--prefix` put scripts beside or above the library directory.
    site = os.path.dirname(package)
    yield os.path.join(site, "bin")
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(site))), "bin")
    import sysconfig

    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", "posix_user")
    yield from _recorded_directories()


def _recorded_directories() -> Iterator[str]:
    import importlib.metadata

    try:
        files = importlib.metadata.files("carril") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "carril" and file.parent.name in ("bin", "Scripts"):
            yield os.path.dirname(os.path.abspath(str(file.locate())))
