"""Writes the public names of an installed `ray` (Ray's own of any generation, or ours) as JSON to a file.

Run by the Python of the environment that has it, 3.9 or newer: `python extract.py FILE`. A name is public when a module
lists it in `__all__`, or when it is annotated as public API and no `__all__` has it. A class comes with its constructor
and its public methods and properties. Nothing is started; libraries that are missing are replaced by stand-ins, so that
`ray.train.lightning` can be read without Lightning.

Parameters are written as in a signature, one text each: `name`, `name=default`, `*`, `*args`, `**options`.
"""

import dataclasses
import enum
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import types
import warnings

ROOTS = ("air", "data", "exceptions", "job_submission", "train", "tune", "util")
# Programs, tests and examples, and what wants a connection when it is looked at.
SKIPPED = {
    "automl",
    "automlboard",
    "benchmarks",
    "client",
    "cluster_ui",
    "examples",
    "scripts",
    "sgd",
    "tests",
    "workers",
}
# The libraries that Ray's modules import; where one is installed, it is used.
# fmt: off
REPLACED = {
    "GPy", "ConfigSpace", "accelerate", "aim", "ax", "bayes_opt", "comet_ml", "composer", "cudf", "cupy", "cv2",
    "daft", "dask", "datasets", "deepspeed", "deltalake", "dm_tree", "dragonfly", "fairscale", "fastapi", "flaml",
    "gluoncv", "gym", "gymnasium", "hebo", "horovod", "hpbandster", "hyperopt", "jax", "joblib", "keras", "lance",
    "lightgbm", "lightgbm_ray", "lightning", "mars", "mlflow", "modin", "mxnet", "nevergrad", "numba",
    "opentelemetry", "optuna", "pygloo", "pyiceberg", "pymars", "pymongo", "pymongoarrow", "pyspark",
    "pytorch_lightning", "raydp", "scipy", "sigopt", "sklearn", "skopt", "snowflake", "starlette", "statsmodels",
    "tensorboardX", "tensorflow", "torch", "torch_xla", "torchft", "torchmetrics", "torchvision", "transformers",
    "tree", "uvicorn", "wandb", "xgboost", "xgboost_ray", "zarr", "zoopt",
}
# fmt: on
PLAIN = (type(None), bool, int, float, str)


class StandIn(type):
    """A class whose every attribute is another one: enough to be a base, a decorator or an annotation."""

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return StandIn(name, (), {"__module__": cls.__module__})

    def __call__(cls, *arguments, **options):
        # As a decorator: the function stays what it is.
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else type.__call__(cls)

    def __getitem__(cls, _item):
        return cls

    def __or__(cls, _other):
        return cls

    __ror__ = __or__


class StandInModule(types.ModuleType):
    __version__ = "99.0.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = StandIn(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: for the libraries above that are not installed."""

    def find_spec(self, name, path=None, target=None):
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in REPLACED else None
        )

    def create_module(self, spec):
        return StandInModule(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def default(value):
    """A default as text, the same in every process and on every machine."""
    if isinstance(value, enum.Enum):
        return type(value).__name__ + "." + value.name
    if isinstance(value, PLAIN):
        return repr(value).replace(os.path.expanduser("~") + "/", "~/")
    if isinstance(value, list):
        return "[" + ", ".join(default(one) for one in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(default(one) for one in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(default(key) + ": " + default(one) for key, one in value.items()) + "}"
    if isinstance(value, type) or inspect.isroutine(value):
        return getattr(value, "__name__", "<function>")
    # A marker for "not given", or an object: what is inside is nobody's business.
    return "<" + type(value).__name__.strip("_").lower() + ">"


def parameters(function):
    """None where there is no signature. Private parameters are left out."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    rows, bare = [], False
    for number, one in enumerate(found):
        if number == 0 and one.name in ("self", "cls"):
            continue
        if one.kind == one.VAR_POSITIONAL:
            rows.append("*" + one.name)
            bare = True
            continue
        if one.kind == one.VAR_KEYWORD:
            rows.append("**" + one.name)
            continue
        if one.kind == one.KEYWORD_ONLY and not bare:
            rows.append("*")
            bare = True
        if not one.name.startswith("_"):
            rows.append(one.name if one.default is one.empty else one.name + "=" + default(one.default))
    return rows[:-1] if rows and rows[-1] == "*" else rows


def described(kind, function):
    found = parameters(function)
    return {"kind": kind} if found is None else {"kind": kind, "parameters": found}


def members(cls):
    """The public methods, properties and fields that Ray's (or our) classes in its line define."""
    found = {}
    for owner in cls.__mro__:
        if (getattr(owner, "__module__", None) or "").partition(".")[0] not in ("ray", "carril"):
            continue
        for name, value in vars(owner).items():
            plain = getattr(value, "__func__", value)
            if name.startswith("_") or name in found or annotation(plain) in ("DEVELOPER_API", "DEPRECATED"):
                continue
            if isinstance(value, (staticmethod, classmethod)):
                found[name] = described("method", value.__func__)
            elif inspect.isfunction(value):
                found[name] = described("method", value)
            elif isinstance(value, property) or type(value).__name__ == "cached_property":
                found[name] = {"kind": "property"}
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if not field.name.startswith("_"):
                found.setdefault(field.name, {"kind": "property"})
    if issubclass(cls, enum.Enum):
        found.update({name: {"kind": "member"} for name in cls.__members__})
    return {name: found[name] for name in sorted(found)}


def describe(value):
    if inspect.ismodule(value):
        return {"kind": "module"}
    # Of ours: it exists so that it can be imported, and raises when it is called.
    if getattr(value, "is_missing", False):
        return {"kind": "missing"}
    if isinstance(value, type):
        start = {"kind": "class"} if issubclass(value, enum.Enum) else described("class", value)
        # What only Ray's own developers use of a class is theirs.
        return start if annotation(value) == "DEVELOPER_API" else {**start, "members": members(value)}
    return described("function", value) if callable(value) else {"kind": "value", "value": default(value)}


def annotation(value):
    """ "PUBLIC_API", "DEVELOPER_API", "DEPRECATED", or None. Ray 1 had annotations without kinds."""
    inside = getattr(value, "__dict__", {})
    if inside.get("_annotated") != getattr(value, "__name__", ""):
        return None
    return getattr(inside.get("_annotated_type"), "name", "PUBLIC_API")


def module_paths(package):
    """Every module below the package by its path, found without importing."""
    names = []
    for directory, directories, files in os.walk(package):
        below = os.path.relpath(directory, os.path.dirname(package)).replace(os.sep, ".")
        if "__init__.py" not in files:
            directories[:] = []
            continue
        directories[:] = sorted(one for one in directories if one.isidentifier() and one != "tests")
        # Of what is far from our roots, the first name is enough.
        if below.count(".") == 1 and below.partition(".")[2] not in ROOTS:
            directories[:], files = [], []
        names.append(below)
        names += [below + "." + one[:-3] for one in files if one.endswith(".py") and one[:-3].isidentifier()]
    return sorted(one for one in names if not one.endswith(".__init__"))


def is_public(path):
    parts = path.split(".")[1:]
    return not parts or (
        parts[0] in ROOTS and not any(one in SKIPPED or one.startswith(("_", "test_")) for one in parts)
    )


def failure(error):
    return type(error).__name__


def extract():
    warnings.simplefilter("ignore")
    import ray

    # Ours says what it has; Ray's modules are files.
    own = sys.modules.get("carril.as_ray.names")
    paths = sorted(own.MODULES) if own is not None else module_paths(os.path.dirname(ray.__file__))
    sys.meta_path.append(StandInFinder())
    modules, failed = {}, {}
    for path in filter(is_public, paths):
        try:
            modules[path] = importlib.import_module(path)
        except BaseException as error:
            failed[path] = failure(error)
    table, listed = {}, set()
    for path, module in modules.items():
        if not hasattr(module, "__all__"):
            continue
        table[path] = {}
        for name in sorted({one for one in module.__all__ if not one.startswith("_") or one == "__version__"}):
            try:
                value = getattr(module, name)
            except BaseException as error:
                failed[path + "." + name] = failure(error)
            else:
                listed.add(id(value))
                table[path][name] = describe(value)
    # Ray 1.13 annotates next to nothing: whatever a module defines counts.
    annotates = not ray.__version__.startswith("1.")
    for path, module in modules.items():
        if path in table:
            continue
        table[path] = {
            name: describe(value)
            for name, value in sorted(vars(module).items())
            if not name.startswith("_")
            and (isinstance(value, type) or inspect.isroutine(value))
            and value.__module__ == path
            and id(value) not in listed
            and (annotation(value) == "PUBLIC_API" or not annotates)
        }
    table = {path: names for path, names in sorted(table.items()) if names}
    return {"version": ray.__version__, "paths": paths, "failed": failed, "modules": table}


def write(record, file):
    """One line for each name, so that a change of Ray's is a change of lines."""

    def text(value):
        return json.dumps(value, sort_keys=True)

    lines = ["{", f' "version": {text(record["version"])},', f' "paths": {text(record["paths"])},', ' "failed": {']
    lines.append(",\n".join(f"  {text(name)}: {text(why)}" for name, why in sorted(record["failed"].items())))
    lines += [" },", ' "modules": {']
    for number, (path, names) in enumerate(record["modules"].items()):
        lines.append(f"  {text(path)}: {{")
        lines.append(",\n".join(f"   {text(name)}: {text(names[name])}" for name in sorted(names)))
        lines.append("  }" + ("," if number + 1 < len(record["modules"]) else ""))
    lines += [" }", "}"]
    file.write("\n".join(line for line in lines if line) + "\n")


if __name__ == "__main__":
    with open(sys.argv[1], "w") as target:
        write(extract(), target)
