"""`carril as-ray --install` and `--uninstall`: puts `ray` into this Python's environment, and takes out exactly that.

Two files: a `.pth` that has every Python of the environment answer for `import ray` (see `startup`), and the command `ray`.
A command `ray` that is there already is set aside and comes back.
"""

import importlib.metadata
import os
import sys
import sysconfig

from carril.as_ray.startup import PTH

# A line of code in a `.pth` is run at each start. An environment that has lost carril must not complain at each.
_LINE = 'import sys; exec("try:\\n from carril.as_ray import startup\\nexcept ImportError:\\n pass\\nelse:\\n startup.install()")\n'
_MARK = "# Made by `carril as-ray --install`."
_ASIDE = ".before-carril"


def _places() -> tuple[str, str]:
    return os.path.join(sysconfig.get_path("purelib"), PTH), os.path.join(sysconfig.get_path("scripts"), "ray")


def _is_our_command(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _MARK in file.read(200)
    except OSError:
        return False


def install() -> None:
    pth, command = _places()
    inner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "ray")
    if os.path.lexists(command) and not _is_our_command(command):
        os.replace(command, command + _ASIDE)
    _write(command, f'#!/bin/sh\n{_MARK}\nexec sh "{inner}" "$@"\n', 0o755)
    real = _installed_ray()
    _write(pth, _LINE, 0o644)
    print(f"`ray` stands for carril in `{sys.prefix}`: `{pth}` and `{command}`")
    if real is not None:
        print(f"note: Ray {real} is installed there too: `import ray` finds carril until `carril as-ray --uninstall`")
        location = os.path.join(os.path.dirname(pth), "ray")
        with open(pth, "a", encoding="utf-8") as file:
            file.write(f"# told of {location}\n")


def uninstall() -> None:
    pth, command = _places()
    removed = []
    if os.path.lexists(pth):
        os.unlink(pth)
        removed.append(pth)
    if _is_our_command(command):
        os.unlink(command)
        removed.append(command)
    if os.path.lexists(command + _ASIDE):
        # Where Ray was removed meanwhile, its command goes with it.
        if _installed_ray() is not None and not os.path.lexists(command):
            os.replace(command + _ASIDE, command)
        else:
            os.unlink(command + _ASIDE)
    names = " and ".join(f"`{path}`" for path in removed)
    print(f"removed {names}" if removed else f"`ray` does not stand for carril in `{sys.prefix}`: nothing was removed")


def _installed_ray() -> str | None:
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return None


def _write(path: str, text: str, mode: int) -> None:
    # Renamed into place: a Python that starts meanwhile reads all of it or nothing.
    new = f"{path}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(new, mode)
    os.replace(new, path)


def main() -> int:
    try:
        install() if sys.argv[1:] == ["install"] else uninstall()
    except OSError as error:
        print(f"error: `{sys.prefix}` cannot be changed: {error}", file=sys.stderr)
        print("hint: make an environment of your own with `python -m venv`, and install carril in it", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
