"""What a dictionary has, in which a key was looked up that is not there.

The exception knows the key alone. Which dictionary it was is read from the line that failed: `config["lr"]`,
`config["model"]["width"]`, `batch["label"]`. Nothing of the user's is called: names are looked up in the frame, and keys in
plain dictionaries.
"""

import ast
import linecache
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

_NOTHING = object()


def keys_there(
    key: object,
    trace: TracebackType | None,
    is_ours: Callable[[str], bool],
    is_library: Callable[[str], bool],
) -> str:
    """`; `config` has `a`, `b`` for the text of the error; empty where it is not known which dictionary it was."""
    found = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        # The lookup itself may happen inside pandas: the line is the user's in any case.
        if not is_ours(name) and not is_library(name):
            found = trace
        trace = trace.tb_next
    if found is None:
        return ""
    lookups = _lookups(found)
    if lookups is None:
        return _only_one(key, found.tb_frame)
    for expression in lookups:
        keys = _keys(_value(expression.value, found.tb_frame))
        asked = _constant(expression.slice, found.tb_frame)
        # An Arrow table says its own sentence instead of the key.
        is_it = asked is _NOTHING or asked == key or (isinstance(key, str) and str(asked) in key)
        asked = key if asked is _NOTHING else asked
        if keys is not None and is_it and asked not in keys:
            return _told(ast.unparse(expression.value), asked, keys)
    return ""


def _told(name: str, key: object, keys: list[object]) -> str:
    from carril._internal.near import listed, near

    meant = near(key, [one for one in keys if isinstance(one, str)]) if isinstance(key, str) else None
    guess = f"did you mean `{meant}`? " if meant is not None else ""
    return f"; {guess}`{name}` has {listed(keys) or 'nothing'}"


def _only_one(key: object, frame: FrameType) -> str:
    """Where there is no source to read: the only dictionary of the function, if it has only one."""
    known = [(name, _keys(value)) for name, value in frame.f_locals.items()]
    there = [(name, keys) for name, keys in known if keys is not None]
    return _told(there[0][0], key, there[0][1]) if len(there) == 1 and key not in there[0][1] else ""


def _lookups(trace: TracebackType) -> list[ast.Subscript] | None:
    """Those of the expression that failed; None where its text is not known."""
    code, frame = trace.tb_frame.f_code, trace.tb_frame
    line, end_line, begin, end = next(
        (place for at, place in enumerate(code.co_positions()) if at == trace.tb_lasti // 2), (None,) * 4
    )
    if line is None or end_line is None or begin is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, number, frame.f_globals) for number in range(line, end_line + 1)]
    if not all(lines):
        return None
    # The places count bytes.
    text = [one.encode() for one in lines]
    text[-1] = text[-1][:end]
    text[0] = text[0][begin:]
    try:
        tree = ast.parse(b"".join(text).decode().strip(), mode="eval")
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]


def _value(expression: ast.expr, frame: FrameType) -> Any:
    """What a name, or a key of what a name stands for, is; `_NOTHING` for anything that would have to be run."""
    if isinstance(expression, ast.Name):
        return frame.f_locals.get(expression.id, frame.f_globals.get(expression.id, _NOTHING))
    if isinstance(expression, ast.Subscript):
        outer = _value(expression.value, frame)
        key = _constant(expression.slice, frame)
        return outer.get(key, _NOTHING) if type(outer) is dict and key is not _NOTHING else _NOTHING
    if isinstance(expression, ast.Attribute):
        holder = _value(expression.value, frame)
        return getattr(holder, "__dict__", {}).get(expression.attr, _NOTHING)
    return _NOTHING


def _constant(expression: ast.expr, frame: FrameType) -> Any:
    if isinstance(expression, ast.Constant):
        return expression.value
    return _value(expression, frame) if isinstance(expression, ast.Name) else _NOTHING


def _keys(value: Any) -> list[object] | None:
    if isinstance(value, Mapping):
        return list(value)
    # A data frame or a table, whose module is loaded where there is one.
    library = type(value).__module__.partition(".")[0]
    if library == "pandas" and hasattr(value, "columns"):
        return list(value.columns)
    if library == "pyarrow" and hasattr(value, "column_names"):
        return list(value.column_names)
    return None
