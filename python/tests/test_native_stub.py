"""`_native.pyi` says what the extension is: every class, method, property and argument, and nothing else."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import carril
from carril import _native

STUB = ast.parse(Path(carril.__file__).with_name("_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
VARIABLES = {
    node.target.id: ast.unparse(node.annotation)
    for node in STUB.body
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
}


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)}


def _arguments(node: ast.FunctionDef) -> list[tuple[str, str]]:
    """Names and defaults, without `self`."""
    arguments = node.args.args[:]
    defaults = ["" for _ in range(len(arguments) - len(node.args.defaults))] + [
        ast.unparse(d) for d in node.args.defaults
    ]
    pairs = list(zip((argument.arg for argument in arguments), defaults, strict=True))
    return pairs[1:] if pairs and pairs[0][0] in ("self", "cls") else pairs


def _actual(function: Any) -> list[tuple[str, str]]:
    parameters = inspect.signature(function).parameters.values()
    return [
        (parameter.name, "" if parameter.default is inspect.Parameter.empty else repr(parameter.default))
        for parameter in parameters
        if parameter.name != "self"
    ]


def _public(thing: Any) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_module_has_what_the_stub_says_and_nothing_else() -> None:
    assert _public(_native) == {name for name in (*CLASSES, *FUNCTIONS, *VARIABLES) if not name.startswith("_")}
    for name, kind in VARIABLES.items():
        assert type(getattr(_native, name)).__name__ == kind.partition("[")[0], name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_arguments_of_the_stub(name: str) -> None:
    assert _actual(getattr(_native, name)) == _arguments(FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_members_of_the_stub_and_no_others(name: str) -> None:
    cls = getattr(_native, name)
    methods = {node.name: node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)}
    assert _public(cls) == {method for method in methods if not method.startswith("_")}
    for method, node in methods.items():
        actual = vars(cls)[method]
        if "property" in _decorators(node):
            assert inspect.isgetsetdescriptor(actual), f"{name}.{method} is a property"
            continue
        assert isinstance(actual, staticmethod) == ("staticmethod" in _decorators(node)), f"{name}.{method}"
        called = cls if method == "__new__" else getattr(cls, method)
        assert _actual(called) == _arguments(node), f"{name}.{method}"


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_final_and_cannot_be_made_by_hand(name: str) -> None:
    cls = getattr(_native, name)
    assert "final" in _decorators(CLASSES[name])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        cls()
    with pytest.raises(TypeError):
        type("Derived", (cls,), {})


def test_the_version_is_that_of_the_package() -> None:
    import importlib.metadata

    assert _native.__version__ == carril.__version__ == importlib.metadata.version("carril")
