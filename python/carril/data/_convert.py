"""Blocks as what people work with, and back: dictionaries of numpy arrays, rows, data frames, Arrow tables.

The only place that knows how the native half hands columns over: `("plain", dtype, memory, shape)`, `("ragged", [plain or
None])`, `("list", values)`; and takes them: the second is `("ragged", dtype, [(memory, shape) or None])` there, and with
`("object", values)` nothing is made of them.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from carril._internal.spec import under_as_ray
from carril._native import Block
from carril.exceptions import ConfigError, ConfigTypeError

if TYPE_CHECKING:
    import numpy
    import pandas
    import pyarrow

# The type of a column that holds Python's own objects.
OBJECT = "object of Python"
_ZONE = re.compile(r'timestamp\(\S+, "(.+)"\)')
FORMATS = ("default", "numpy", "pandas", "pyarrow", None)


def to_array(given: Any) -> "numpy.ndarray[Any, Any]":
    import numpy

    if given[0] == "plain":
        _, dtype, memory, shape = given
        if not len(memory):
            return numpy.empty(shape, dtype)
        made = numpy.frombuffer(memory, dtype)
        return made if len(shape) == 1 else made.reshape(shape)
    if given[0] == "ragged":
        return _objects([None if part is None else to_array(part) for part in given[1]])
    return _objects(given[1])


def to_numpy(block: Block) -> "dict[str, numpy.ndarray[Any, Any]]":
    return {name: to_array(block.column(number)) for number, name in enumerate(block.names)}


def to_rows(block: Block) -> list[dict[str, Any]]:
    names = block.names
    columns = [
        to_array(block.column(number)) if kind.startswith("tensor") else block.values(number)
        for number, kind in enumerate(block.types)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if names else []


def to_arrow(block: Block) -> "pyarrow.Table":
    import pyarrow

    for name, kind in zip(block.names, block.types, strict=True):
        if kind == OBJECT:
            raise ConfigError(
                f"no Arrow table can hold the column `{name}`, which has objects of Python",
                hints=["make numbers, texts, lists or arrays of them with `map`, or drop it with `drop_columns`"],
            )
    return pyarrow.table(block)


def to_pandas(block: Block) -> "pandas.DataFrame":
    import pandas

    made: dict[str, Any] = {}
    for number, (name, kind) in enumerate(zip(block.names, block.types, strict=True)):
        column, zone = to_array(block.column(number)), _ZONE.fullmatch(kind)
        if zone is not None:
            # Numpy has no zones: its times are those of UTC.
            made[name] = pandas.Series(column).dt.tz_localize("UTC").dt.tz_convert(zone[1])
        else:
            made[name] = list(column) if column.ndim > 1 else column
    return pandas.DataFrame(made)


def to_format(block: Block, batch_format: str | None) -> Any:
    if batch_format in ("default", "numpy"):
        return to_numpy(block)
    return to_pandas(block) if batch_format == "pandas" else to_arrow(block)


def check_format(batch_format: str | None) -> None:
    if batch_format not in FORMATS:
        raise ConfigError(
            f"unknown `batch_format` {batch_format!r}", hints=["use 'numpy' (the default), 'pandas' or 'pyarrow'"]
        )


def check_names(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ConfigError(
            f"there would be two columns `{twice}`", hints=["give it another name, or drop the one that is there"]
        )


def of_numpy(columns: Mapping[str, Any]) -> Block:
    given = [(str(name), _column(values)) for name, values in columns.items()]
    lengths = {name: _rows(column) for name, column in given}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"`{name}` has {rows}" for name, rows in lengths.items())
        raise ValueError(f"the columns are of unequal length: {told}")
    rows = next(iter(lengths.values()), 0)
    try:
        return Block.of_columns(given, rows)
    except TypeError:
        if not under_as_ray():
            raise
    # Ray keeps what has no type in common as it is.
    return Block.of_columns([(name, _as_objects(name, column)) for name, column in given], rows)


def _as_objects(name: str, column: tuple[Any, ...]) -> tuple[Any, ...]:
    """A column of values that are of no one type, as objects."""
    if column[0] != "list":
        return column
    try:
        Block.of_columns([(name, column)], len(column[1]))
    except TypeError:
        return ("object", column[1])
    return column


def _rows(column: Any) -> int:
    return int(column[3][0]) if column[0] == "plain" else len(column[-1])


def _column(values: Any) -> tuple[Any, ...]:
    import numpy

    values = _on_host(values)
    if not isinstance(values, numpy.ndarray):
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise ValueError(f"a column is an array or a list of values, not {type(values).__name__}")
        values = [_on_host(value) for value in values]
        if values and _is_number_of_numpy(values[0]) and all(type(value) is type(values[0]) for value in values):
            return _column(numpy.array(values))
        if not any(isinstance(value, numpy.ndarray) for value in values):
            return ("list", values)
        values = _objects(values)
    if values.ndim == 0:
        raise TypeError("a column is an array with a row for each value, not a single value")
    if values.dtype == object:
        return _of_objects(values)
    if values.dtype.kind in "US":
        return ("list", values.tolist())
    if values.dtype.kind in "mM" and numpy.datetime_data(values.dtype)[0] not in ("s", "ms", "us", "ns"):
        values = values.astype(f"{values.dtype.kind}8[s]")
    return _plain(values)


def _is_number_of_numpy(value: Any) -> bool:
    import numpy

    return isinstance(value, numpy.generic) and value.dtype.kind in "biuf" and value.itemsize <= 8


def _on_host(value: Any) -> Any:
    """A tensor of torch as an array."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") and hasattr(value, "cpu") else value


def _objects(values: Sequence[Any]) -> "numpy.ndarray[Any, Any]":
    import numpy

    made = numpy.empty(len(values), object)
    for number, value in enumerate(values):
        made[number] = value
    return made


def _plain(values: "numpy.ndarray[Any, Any]") -> tuple[Any, ...]:
    values = _contiguous(values)
    return ("plain", values.dtype.str, _bytes(values), values.shape)


def _contiguous(values: "numpy.ndarray[Any, Any]") -> "numpy.ndarray[Any, Any]":
    import numpy

    if values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("<"))
    return numpy.ascontiguousarray(values)


def _bytes(values: "numpy.ndarray[Any, Any]") -> Any:
    return values.reshape(-1).view("u1") if values.size else b""


def _of_objects(values: "numpy.ndarray[Any, Any]") -> tuple[Any, ...]:
    import numpy

    rows = list(values)
    arrays = [row for row in rows if row is not None]
    if not arrays or not all(isinstance(row, numpy.ndarray) and row.dtype.kind in "biufmM" for row in arrays):
        return ("list", [row.tolist() if isinstance(row, numpy.ndarray) else row for row in rows])
    has_gaps = len(arrays) < len(rows)
    if len({row.shape for row in arrays}) == 1 and not has_gaps:
        return _plain(numpy.stack(arrays))
    if len({row.ndim for row in arrays}) > 1:
        raise ValueError("the arrays of one column have different numbers of dimensions")
    if arrays[0].ndim == 0:
        return ("list", [None if row is None else row[()] for row in rows])
    dtype = numpy.result_type(*{row.dtype for row in arrays})
    parts = [None if row is None else _contiguous(row.astype(dtype, copy=False)) for row in rows]
    given = [None if part is None else (_bytes(part), part.shape) for part in parts]
    return ("ragged", _contiguous(numpy.empty(0, dtype)).dtype.str, given)


def of_rows(rows: Sequence[Mapping[str, Any]]) -> Block:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return of_numpy({name: [row.get(name) for row in rows] for name in names})


def of_objects(name: str, values: Sequence[Any]) -> Block:
    """One column, whose values stay what they are."""
    return Block.of_columns([(name, ("object", list(values)))], len(values))


def of_columns(columns: Mapping[str, Any]) -> Block:
    """As `of_numpy`; columns of pyarrow, of pandas and masked ones of numpy keep their types, and what is missing in them."""
    given = {str(name): _of_library(values) for name, values in columns.items()}
    if not any(_is_arrow(values) for values in given.values()):
        return of_numpy(given)
    blocks = [
        _of_arrow_array(name, values) if _is_arrow(values) else of_numpy({name: values})
        for name, values in given.items()
    ]
    if len({len(block) for block in blocks}) > 1:
        told = ", ".join(f"`{name}` has {len(block)}" for name, block in zip(given, blocks, strict=True))
        raise ValueError(f"the columns are of unequal length: {told}")
    return functools.reduce(Block.beside, blocks)


def of_one(name: str, values: Any, rows: int, *, is_aligned: bool) -> Block:
    """A column for a batch of so many rows: a constant is the value of each. With `is_aligned` a series goes by its index."""
    if is_aligned and hasattr(values, "reindex"):
        import pandas

        if isinstance(values, pandas.DataFrame) and len(values.columns) == 1:
            values = values.iloc[:, 0]
        index = pandas.RangeIndex(rows)
        values = values if values.index.equals(index) else values.reindex(index)
    values = _on_host(values)
    if hasattr(values, "as_py") and not _is_arrow(values):
        values = _pyarrow().repeat(values, rows)
    elif getattr(values, "ndim", 1) == 0:
        values = [values[()]] * rows
    elif isinstance(values, str | bytes) or not (values is None or isinstance(values, Iterable)):
        values = [values] * rows
    if isinstance(values, Mapping):
        raise TypeError(f"a column is an array or a list of values, not {type(values).__name__}")
    made = of_columns({name: values})
    if len(made) != rows:
        raise ValueError(f"the column `{name}` has {len(made)} rows, and the batch has {rows}")
    return made


def _of_library(values: Any) -> Any:
    import numpy

    if hasattr(values, "isna") and hasattr(values, "dtype"):
        return _of_series(values)
    if isinstance(values, numpy.ma.MaskedArray):
        return _of_masked(values)
    return values


def _of_series(column: Any) -> Any:
    """A series, an index or an array of pandas: as an array of numpy where that has all of it."""
    import numpy

    if isinstance(column.dtype, numpy.dtype) and column.dtype != object:
        return column.to_numpy()
    is_known = hasattr(column.dtype, "tz") or hasattr(getattr(column, "array", column), "__arrow_array__")
    if is_known and column.dtype.kind in "biufM" and (pyarrow := _pyarrow()) is not None:
        return pyarrow.array(column)
    return _objects([None if _is_gap(value) else value for value in column.tolist()])


def _of_masked(values: Any) -> Any:
    import numpy

    mask = numpy.ma.getmaskarray(values)
    if not mask.any():
        return values.data
    if values.ndim > 1:
        raise TypeError(
            "a masked array of several dimensions is no column: give one without a mask, or a list with `None` for rows"
        )
    if (pyarrow := _pyarrow()) is not None and values.dtype.kind in "biufmM":
        return pyarrow.array(values.data, mask=mask)
    return [None if gap else value for value, gap in zip(values.data, mask, strict=True)]


def _pyarrow() -> Any:
    """Where it is installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def _is_arrow(values: Any) -> bool:
    return hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")


def _of_arrow_array(name: str, values: Any) -> Block:
    import pyarrow

    array = pyarrow.array(values) if hasattr(values, "__arrow_c_array__") else pyarrow.chunked_array(values)
    (block,) = Block.of_arrow(pyarrow.table({name: array}).combine_chunks())
    return block


def of_pandas(frame: "pandas.DataFrame") -> Block:
    check_names([str(name) for name in frame.columns])
    return of_columns({str(name): frame[name] for name in frame.columns})


def _is_gap(value: Any) -> bool:
    if value is None:
        return True
    import pandas

    return bool(pandas.api.types.is_scalar(value) and pandas.isna(value))


def of_arrow(table: Any) -> list[Block]:
    if not hasattr(table, "__arrow_c_stream__"):
        raise ConfigTypeError(
            f"{type(table).__name__} is no table: pyarrow's and others that speak Arrow's interface are"
        )
    return Block.of_arrow(table)


def of_batch(batch: Any) -> list[Block]:
    """Whatever a user's function may return for a batch."""
    if isinstance(batch, Block):
        return [batch]
    if isinstance(batch, Mapping):
        return [of_columns(batch)]
    if hasattr(batch, "iloc") and hasattr(batch, "columns"):
        return [of_pandas(batch)]
    if hasattr(batch, "__arrow_c_stream__"):
        return of_arrow(batch)
    raise ValueError(
        "a batch is a dictionary of arrays, a pandas data frame or a pyarrow table, "
        f"not {type(batch).__name__}: {str(batch)[:80]}"
    )
