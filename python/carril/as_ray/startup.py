"""What `carril as-ray --install` has every Python of an environment do when it starts: answer for the name `ray`.

Nothing but a finder in front of `sys.meta_path`, so that a program that never says `import ray` pays next to nothing and
runs as if it were not there. One that does runs as under `carril as-ray`, and so does what it starts.
"""

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PTH = "carril-as-ray.pth"
_HERE = os.path.dirname(os.path.abspath(__file__))


class RayIsCarril:
    """The finder, for `ray` itself; what is below it is the package's own finder's."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "ray":
            return None
        from importlib.machinery import PathFinder

        from carril._internal.imports import is_installed_location

        other = PathFinder.find_spec("ray", [entry for entry in sys.path if entry != os.path.join(_HERE, "path")])
        # A directory that only happens to be called so, without an origin, is not meant.
        if other is not None and other.origin is not None:
            if not is_installed_location(other.origin):
                # A file of the script's own: the script means that one.
                return None
            _tell_once(os.path.dirname(other.origin))
        os.environ["CARRIL_AS_RAY"] = "1"
        return PathFinder.find_spec("ray", [os.path.join(_HERE, "path")])


def is_installed() -> bool:
    """Whether this Python answers for `ray` by itself."""
    return RayIsCarril in sys.meta_path


def install() -> None:
    if RayIsCarril not in sys.meta_path:
        sys.meta_path.insert(0, RayIsCarril)


def _tell_once(other: str) -> None:
    """Says that an installed Ray is not used: once in the life of the environment, and never in a worker."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if os.environ.get("CARRIL_AS_RAY") == "1" or (main is not None and main.name.startswith("carril.")):
        return
    import sysconfig

    told = f"# told of {other}\n"
    file = os.path.join(sysconfig.get_path("purelib"), PTH)
    try:
        with open(file, "r+", encoding="utf-8") as opened:
            if told in opened.read():
                return
            opened.write(told)
    except OSError:
        pass
    print(
        f"carril: `import ray` finds carril here, and not the Ray in `{other}`: `carril as-ray --uninstall` undoes that",
        file=sys.stderr,
    )
