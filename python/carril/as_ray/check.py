"""Notices another `ray` where ours should be.

Our directory stands in front of PYTHONPATH, and still a real Ray can win: the script's own directory comes before
PYTHONPATH, `python -I` ignores it, a program may change `sys.path`. Half of one and half of the other fails far from
the cause, so our `ray` refuses to be imported beside parts of another one, and `carril` can ask before it trains.
"""

import os
import sys

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path", "ray")


def _is_ours(location: str) -> bool:
    # The file system's own answer: an installed package may be reached through links (`lib64`, an editable install).
    return os.path.realpath(location).startswith(os.path.realpath(_OURS) + os.sep)


def _loaded_elsewhere() -> str | None:
    for name, module in list(sys.modules.items()):
        if name != "ray" and not name.startswith("ray."):
            continue
        location = getattr(module, "__file__", None)
        if isinstance(location, str) and not _is_ours(location):
            return f"`{name}` is loaded from `{location}`"
    return None


def _found_first() -> str | None:
    for entry in sys.path:
        directory = os.path.join(entry or os.getcwd(), "ray")
        for location in (os.path.join(directory, "__init__.py"), directory + ".py"):
            if os.path.isfile(location):
                return None if _is_ours(location) else f"`import ray` finds `{location}`"
    return None


def real_ray_in_the_way() -> str | None:
    """What shows that another `ray` than ours is loaded, or would be; None when there is none.

    Outside `carril as-ray` a Ray that is only installed is no business of ours, but one beside our own package is.
    """
    from carril.as_ray import startup

    loaded = _loaded_elsewhere()
    # Where `carril as-ray --install` was, a finder answers before the paths are asked.
    if loaded is not None or startup.is_installed():
        return loaded
    return _found_first() if os.environ.get("CARRIL_AS_RAY") == "1" else None


def refuse_real_ray() -> None:
    """Raises an ImportError where a real Ray is in the way."""
    found = real_ray_in_the_way()
    if found is not None:
        raise ImportError(
            f"another `ray` is in the way of carril's: {found}\n"
            "hint: under `carril as-ray` nothing may come before its directory in `sys.path`;"
            " to use the real Ray, run the command without `carril as-ray`"
        )
