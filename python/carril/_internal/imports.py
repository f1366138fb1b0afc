"""Which imports of a driver can be made ahead of time, in the process that workers are forked from.

Only installed packages can: the user's own files change between runs and may do anything when they are imported.
Nothing here imports what it looks at.

IMP-1: a name counts as installed only if the driver's own `sys.path` leads to an installed file first, so that a
user's `numpy.py` is never mistaken for numpy.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder

_INSTALL_DIRECTORIES = ("/site-packages", "/dist-packages")

# Tools around a driver that no worker needs; some start threads, which would forbid the fork.
_NOT_FOR_WORKERS = frozenset(
    (
        "IPython",
        "_distutils_hack",
        "_pytest",
        "carril",
        "coverage",
        "debugpy",
        "ipykernel",
        "jupyter_client",
        "jupyter_core",
        "mypy",
        "pip",
        "pkg_resources",
        "pluggy",
        "pytest",
        "setuptools",
        "tornado",
        "traitlets",
        "wheel",
        "zmq",
    ),
)


def is_installed_location(location: str | None) -> bool:
    """True for a file or directory inside a directory that package installers own."""
    return location is not None and any(directory in location for directory in _INSTALL_DIRECTORIES)


def _spec_is_installed(spec: ModuleSpec | None) -> bool:
    if spec is None:
        return False
    # A namespace package has no origin: all of its parts must be installed.
    locations = list(spec.submodule_search_locations or ())
    if spec.has_location and spec.origin is not None:
        return is_installed_location(spec.origin)
    return bool(locations) and all(is_installed_location(location) for location in locations)


def may_be_for_workers(top: str) -> bool:
    """False for the standard library and for tools that belong to the driver alone."""
    return top not in sys.stdlib_module_names and top not in _NOT_FOR_WORKERS


def is_installed_package(top: str, path: Sequence[str] | None = None) -> bool:
    """True if importing the top-level name `top` would load an installed package."""
    if not may_be_for_workers(top):
        return False
    try:
        return _spec_is_installed(PathFinder.find_spec(top, path))
    except Exception:  # a foreign path hook may raise anything, and a guess is all that is lost
        return False


def installed_entries(path: Iterable[str]) -> list[str]:
    """The entries of a `sys.path` that hold the standard library or installed packages."""
    base = (sys.base_prefix + "/", sys.base_exec_prefix + "/")
    return [entry for entry in path if is_installed_location(entry) or entry.startswith(base)]


def imported_installed_modules() -> list[str]:
    """The modules of installed packages that this process has imported, parents before children."""
    answers: dict[str, bool] = {}
    names = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        answer = answers.get(top)
        if answer is None:
            answer = False
            if may_be_for_workers(top):
                spec = getattr(sys.modules.get(top, module), "__spec__", None)
                answer = isinstance(spec, ModuleSpec) and _spec_is_installed(spec)
            answers[top] = answer
        if answer:
            names.append(name)
    return names


def script_imports(script: str) -> list[str]:
    """The full names that a script imports at its top level, also inside `if`, `try` and `with` there.

    A script that cannot be read or parsed has none: the driver will say so better than we could.
    """
    import ast

    try:
        with open(script, "rb") as file:
            tree = ast.parse(file.read(), script)
    except (OSError, SyntaxError, ValueError):
        return []
    names: dict[str, None] = {}
    pending: list[ast.stmt] = list(reversed(tree.body))
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.Import):
            names.update((alias.name, None) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            if statement.level == 0 and statement.module is not None:
                names[statement.module] = None
                # `from package import name` may name a submodule; whether it does shows when it is tried.
                names.update(
                    (f"{statement.module}.{alias.name}", None) for alias in statement.names if alias.name != "*"
                )
        elif isinstance(statement, ast.If):
            if not _only_for_type_checkers(statement.test):
                pending.extend(reversed(statement.body))
            pending.extend(reversed(statement.orelse))
        elif isinstance(statement, ast.Try):
            for handler in statement.handlers:
                pending.extend(reversed(handler.body))
            pending.extend(reversed([*statement.body, *statement.orelse, *statement.finalbody]))
        elif isinstance(statement, ast.With):
            pending.extend(reversed(statement.body))
    return list(names)


def _only_for_type_checkers(test: object) -> bool:
    return getattr(test, "id", None) == "TYPE_CHECKING" or getattr(test, "attr", None) == "TYPE_CHECKING"
