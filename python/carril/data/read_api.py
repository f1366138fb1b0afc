"""Where data sets come from: files, memory, other libraries."""

import datetime
import decimal
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from carril._internal.spec import under_as_ray
from carril._native import Block
from carril.data import _convert, _filesystem
from carril.data._functions import Operation
from carril.data._numbers import whole
from carril.data._plan import Derived, Memory, Plan, Read
from carril.data.dataset import Dataset, MaterializedDataset
from carril.data.partitioning import Partitioning
from carril.exceptions import (
    ConfigError,
    ConfigTypeError,
    FilesNotFoundError,
    NotAvailableError,
    NotFoundError,
    of_another_ray,
)

if TYPE_CHECKING:
    import numpy
    import pandas

_ROWS_IN_A_BLOCK = 65_536
# A sample of torch may be an image: few are made in one go.
_SAMPLES_IN_A_UNIT = 256
# What Ray has, and what means nothing here: reading is not a task that is placed, and a block is what a file has.
_WITHOUT_EFFECT = frozenset(
    {
        "parallelism",
        "num_cpus",
        "num_gpus",
        "memory",
        "ray_remote_args",
        "concurrency",
        "override_num_blocks",
        "meta_provider",
        "tensor_column_schema",
        "file_shuffle",
    }
)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_COMPARISONS = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
_MODES = ("L", "LA", "RGB", "RGBA")
_TYPES = {int: "int64", float: "double", str: "string", bool: "bool", bytes: "binary"}


def _read(format: str, paths: Any, options: dict[str, Any], given: dict[str, Any]) -> Dataset:
    """`options` are the reader's own; of `given` what every reader knows is taken."""
    name = f"read_{_NAMES.get(format, format)}"
    listed = _paths(name, paths)
    files: dict[str, Any] = {
        "include_paths": bool(given.pop("include_paths", False)),
        "ignore_missing_paths": bool(given.pop("ignore_missing_paths", False)),
        "file_extensions": _names(name, "file_extensions", given.pop("file_extensions", None)),
        "max_errors": _at_least_0(name, "max_errors", given.pop("max_errors", 0)),
        **_partitions(name, given.pop("partitioning", "hive")),
        "compression": _compression(name, given.pop("arrow_open_stream_args", None)),
    }
    filesystem, listed = _filesystem.for_reading(given.pop("filesystem", None), listed)
    chosen = given.pop("partition_filter", None)
    shuffle = _file_shuffle(name, given.pop("shuffle", None))
    unknown = sorted(set(given) - _WITHOUT_EFFECT)
    if unknown:
        known = sorted(set(options) | set(files))
        raise ConfigTypeError(
            f"`{name}` has no option `{unknown[0]}`",
            hints=[*of_another_ray(name, unknown[0]), f"it knows {', '.join(f'`{one}`' for one in known)}"],
        )
    if "columns" in options:
        options["columns"] = _names(name, "columns", options["columns"])
    if options.get("column_types") is not None:
        options["column_types"] = _types(name, options["column_types"])
    spec: dict[str, Any] = {"format": format, "paths": listed}
    spec["files"] = {key: value for key, value in files.items() if value is not None}
    if chosen is not None:
        spec["paths"] = listed = _filtered(name, spec, filesystem, chosen)
    # `quote=False` is none at all, and without it there is one.
    spec["options"] = {
        key: None if value is False and key in ("quote", "escape") else value
        for key, value in options.items()
        if value is not None
    }
    shown = listed[0] if len(listed) == 1 else f"{len(listed)} paths"
    made = Dataset(Plan(Read(spec, f"{name}({shown})", filesystem)))
    # Wrong paths are an error here, and not when the rows are wanted.
    try:
        made._open()
    except NotFoundError as error:
        raise FilesNotFoundError(error.message, hints=error.hints) from None
    return made if shuffle is None else made.randomize_block_order(seed=shuffle.seed)


def _filtered(
    name: str, spec: dict[str, Any], filesystem: bytes | None, chosen: Callable[[list[str]], list[str]]
) -> list[str]:
    """The paths of the files that a filter leaves. They are only listed: what it leaves out may be no data at all."""
    listing = Read(
        {"format": "binary", "paths": spec["paths"], "files": spec["files"], "options": {}}, name, filesystem
    )
    kept = list(chosen(listing.open([]).files()))
    if not kept:
        raise ConfigError(f"`{name}`: `partition_filter` leaves none of the files")
    return kept


@dataclass(frozen=True)
class FileShuffleConfig:
    """The files in another order: with a `seed` the same one for each data set, otherwise another one for each pass.

    The epochs of a training run have orders of their own in either case.
    """

    seed: int | None = None
    reseed_after_execution: bool = True


def _file_shuffle(name: str, given: Any) -> FileShuffleConfig | None:
    if given is None or isinstance(given, FileShuffleConfig):
        return given
    if given != "files":
        raise ConfigError(
            f"`{name}` was given `shuffle={given!r}`", hints=['it can be "files" or a `FileShuffleConfig(seed=…)`']
        )
    return FileShuffleConfig()


_COMPRESSIONS = {"gzip": "gzip", "bz2": "bz2", "zstd": "zstd", "lz4": "lz4", "xz": "xz", None: "none"}


def _compression(name: str, streams: Any) -> str | None:
    """How files are compressed, where it is said; `"detect"` goes by their names, as is usual."""
    given = dict(streams or {}).get("compression", "detect")
    if given == "detect":
        return None
    if given not in _COMPRESSIONS:
        known = ", ".join(f"`{one}`" for one in _COMPRESSIONS if one)
        raise ConfigError(f"`{name}` cannot unpack `compression={given!r}`", hints=[f"it unpacks {known}"])
    return _COMPRESSIONS[given]


# What a format's function is named, where it is not named after the format.
_NAMES = {"binary": "binary_files", "tfrecord": "tfrecords"}


def _paths(name: str, paths: Any) -> list[str]:
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(several, Iterable) or isinstance(several, bytes | Mapping):
        raise ConfigTypeError(
            f"`{name}` wants a path or a list of paths, not {type(paths).__name__}",
            hints=["a path is that of a file or a directory, a glob, or a URI such as `s3://bucket/path`"],
        )
    listed = list(several)
    wrong = next((path for path in listed if not isinstance(path, str | os.PathLike)), None)
    if wrong is not None:
        raise ConfigTypeError(f"`{name}` wants paths, and one of them is {wrong!r}", hints=["a path is a string"])
    if not listed:
        raise ConfigError(f"`{name}` was given no path", hints=["an empty list reads nothing"])
    return [os.fspath(path) for path in listed]


def _names(name: str, option: str, given: Any) -> list[str] | None:
    if given is None:
        return None
    names: list[Any] = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(one, str) for one in names):
        raise ConfigTypeError(f"`{name}` wants `{option}` as a list of names, not {given!r}")
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise ConfigError(f"`{name}` was given `{twice}` twice in `{option}`")
    return names


def _at_least_0(name: str, option: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ConfigTypeError(f"`{name}` wants `{option}` as a number that is not negative, not {given!r}")
    return given


def _partitions(name: str, given: Any) -> dict[str, Any]:
    """Which columns stand in paths: a `Partitioning`, `"hive"` or none. Ray's are texts, unless they have a type."""
    if given is None:
        return {"partitioning": False}
    if given == "hive":
        given = Partitioning("hive")
    if not isinstance(given, Partitioning):
        raise ConfigError(
            f"`{name}` was given `partitioning={given!r}`",
            hints=['`"hive"`, the default, makes columns of directories such as `year=2024`, and `None` makes none'],
        )
    return {"partitioning": True, "partitions": {**given._spec(), "are_texts": under_as_ray()}}


def _types(name: str, given: Any) -> dict[str, str]:
    """The types of columns by their names in Arrow; those of Python and of pyarrow have one."""
    if not isinstance(given, Mapping):
        # A schema of pyarrow.
        if not hasattr(given, "names") or not hasattr(given, "types"):
            raise ConfigTypeError(
                f"`{name}` wants `column_types` as a dictionary of names and types, not {type(given).__name__}"
            )
        given = dict(zip(given.names, given.types, strict=True))
    return {str(column): _TYPES.get(kind) or str(kind) for column, kind in given.items()}


def _conditions(filter: Any) -> list[list[Any]] | None:
    """`[("x", ">", 3), …]`, all of which must hold; a single one may stand alone."""
    if filter is None:
        return None
    several = [filter] if isinstance(filter, tuple) and len(filter) == 3 and isinstance(filter[0], str) else filter
    if not isinstance(several, list | tuple) or isinstance(several, str):
        raise ConfigTypeError(
            f"`read_parquet` wants `filter` as a list of comparisons, not {type(filter).__name__}",
            hints=['`filter=[("x", ">", 3), ("y", "in", ["a", "b"])]`: all of them must hold'],
        )
    made = []
    for one in several:
        if not isinstance(one, list | tuple) or len(one) != 3 or not isinstance(one[0], str):
            raise ConfigTypeError(f"a comparison is a column, an operator and a value, not {one!r}")
        column, operator, value = one
        if operator not in _COMPARISONS:
            raise ConfigError(f"`{operator}` compares nothing", hints=[f"these do: {', '.join(_COMPARISONS)}"])
        several_values = isinstance(value, list | tuple | set | frozenset)
        made.append([column, operator, [_value(v) for v in value] if several_values else _value(value)])
    return made


def _value(value: Any) -> Any:
    """A value as JSON has it: a date is compared as the text that means it."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ConfigTypeError(
        f"{value!r} cannot be compared with a column", hints=["numbers, texts, dates, true, false and `None` can"]
    )


def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Dataset:
    """Parquet files. `filter` is a list of comparisons: `[("x", ">", 3)]`."""
    return _read("parquet", paths, {"columns": columns, "filter": _conditions(filter)}, options)


def read_csv(paths: Paths, **options: Any) -> Dataset:
    """CSV files; `delimiter`, `column_types` and the like are the reader's, or stand in pyarrow's options."""
    names = (
        "header",
        "column_names",
        "delimiter",
        "quote",
        "escape",
        "skip_rows",
        "columns",
        "column_types",
        "null_values",
        "strings_can_be_null",
    )
    chosen = _arrow_csv_options(options)
    chosen.update({name: options.pop(name) for name in names if name in options})
    for name in ("delimiter", "quote", "escape"):
        one = chosen.get(name)
        if one is not None and one is not False and not (isinstance(one, str) and len(one) == 1):
            raise ConfigTypeError(f"`read_csv` wants `{name}` as one character, not {one!r}")
    if chosen.get("column_names") is not None:
        chosen["column_names"] = _names("read_csv", "column_names", chosen["column_names"])
    if chosen.get("null_values") is not None:
        chosen["null_values"] = [str(word) for word in chosen["null_values"]]
    _at_least_0("read_csv", "skip_rows", chosen.get("skip_rows", 0))
    return _read("csv", paths, {**dict.fromkeys(names), **chosen}, options)


def _arrow_csv_options(options: dict[str, Any]) -> dict[str, Any]:
    """What `read_options`, `parse_options` and `convert_options` of `pyarrow.csv` say, as this reader has it."""
    made: dict[str, Any] = {}
    read, parse, convert = (options.pop(f"{kind}_options", None) for kind in ("read", "parse", "convert"))
    if read is not None:
        made["skip_rows"] = read.skip_rows
        if read.column_names or read.autogenerate_column_names:
            made["header"] = False
            made["column_names"] = list(read.column_names) or None
    if parse is not None:
        made["delimiter"], made["quote"] = parse.delimiter, parse.quote_char
        made["escape"] = parse.escape_char or None
    if convert is not None:
        made["column_types"] = dict(convert.column_types) or None
        made["columns"] = list(convert.include_columns) or None
        made["strings_can_be_null"] = convert.strings_can_be_null
        if list(convert.null_values) != list(type(convert)().null_values):
            made["null_values"] = list(convert.null_values)
    return made


def read_json(paths: Paths, *, lines: bool = False, **options: Any) -> Dataset:
    """JSON: a value in each line, or an array of them in a file; which of the two is seen.

    The types are found in the first `infer_bytes` of each file (4 MB; 0 for all of it). With `lines` an array in a line
    is a row too, whose columns are `0`, `1` and so on. Of pyarrow's options `parse_options` has an effect.
    """
    chosen = {name: options.pop(name, None) for name in ("columns", "column_types", "infer_bytes")}
    # How much is read at once: it is read as it fits here.
    options.pop("read_options", None)
    parse = options.pop("parse_options", None)
    schema = getattr(parse, "explicit_schema", None)
    if schema is not None:
        chosen["column_types"] = chosen["column_types"] or schema
        if parse.unexpected_field_behavior == "ignore":
            chosen["columns"] = chosen["columns"] or list(schema.names)
    return _read("json", paths, {**chosen, "lines": bool(lines)}, options)


def read_text(paths: Paths, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Any) -> Dataset:
    """A row for each line, in the column `text`."""
    chosen = {"encoding": encoding, "drop_empty_lines": drop_empty_lines}
    return _read("text", paths, chosen, options)


def read_images(
    paths: Paths, *, size: tuple[int, int] | None = None, mode: str | None = None, **options: Any
) -> Dataset:
    """Images as tensors in the column `image`; with `size` (height, width) all of one shape."""
    sides = list(size) if isinstance(size, Iterable) else []
    if size is not None and len(sides) != 2:
        raise ConfigTypeError(
            f"`read_images` wants `size` as a height and a width, not {size!r}", hints=["such as `size=(224, 224)`"]
        )
    pixels = [whole(one, 1, f"size={size!r}", "pixels") for one in sides] or None
    if mode is not None and mode not in _MODES:
        raise ConfigError(
            f"`read_images` has no `mode={mode!r}`", hints=[f"use one of {', '.join(f'`{one}`' for one in _MODES)}"]
        )
    return _read("images", paths, {"size": pixels, "mode": mode}, options)


def read_binary_files(paths: Paths, **options: Any) -> Dataset:
    """A row for each file, in the column `bytes`."""
    return _read("binary", paths, {}, options)


def read_numpy(paths: Paths, **options: Any) -> Dataset:
    """`.npy` files, in the column `data`."""
    return _read("numpy", paths, {}, options)


def read_tfrecords(paths: Paths, **options: Any) -> Dataset:
    """Records of `tf.train.Example`; the features in `lists` are columns of lists, however many values they have."""
    lists = _names("read_tfrecords", "lists", options.pop("lists", None))
    return _read("tfrecord", paths, {"lists": lists}, options)


def read_webdataset(paths: Paths, **options: Any) -> Dataset:
    """Samples in tar files, with their key and the file that they are from; with `suffixes` only these columns.

    Suffixes are names, patterns such as `*.txt`, or a function of a name. `decoder` is true for the usual decoding, `None`
    for bytes, or functions of a sample, one after the other. With `expand_json` the values of `.json` are columns.
    """
    decoder = options.pop("decoder", options.pop("decode", True))
    decoders = list(decoder) if isinstance(decoder, list | tuple) else [decoder]
    functions = [one for one in decoders if callable(one)]
    chosen: dict[str, Any] = {"decode": decoders[:1] == [True]}
    if not chosen["decode"] and (unknown := [one for one in decoders if one and not callable(one)]):
        raise NotAvailableError(
            f"`read_webdataset(decoder={unknown[0]!r})` is not built yet",
            hints=["`True` decodes images, texts and numbers, and a function of a sample what it likes"],
        )
    suffixes = options.pop("suffixes", None)
    if callable(suffixes):
        every = _read("webdataset", paths, {"decode": False}, dict(options)).columns()
        suffixes = [name for name in every if not name.startswith("__") and suffixes(name)]
    chosen["suffixes"] = _names("read_webdataset", "suffixes", suffixes)
    expands = bool(options.pop("expand_json", False))
    made = _read("webdataset", paths, chosen, options)
    # Natively a member `.json` is a text, which needs no process to parse it.
    texts = [name for name in made.columns() if name.rpartition(".")[2] == "json"]
    if chosen["decode"] and texts and (expands or under_as_ray()):
        made = made.map(_parsed, fn_kwargs={"texts": texts, "expands": expands})
    for function in functions:
        made = made.map(function)
    return made


def _parsed(sample: dict[str, Any], texts: Sequence[str], expands: bool) -> dict[str, Any]:
    for name in texts:
        value = None if sample[name] is None else json.loads(sample[name])
        sample[name] = value
        if expands and isinstance(value, Mapping):
            sample.update(value)
    return sample


def read_ipc(paths: Paths, **options: Any) -> Dataset:
    """Arrow's own files and streams."""
    return _read("ipc", paths, {"columns": options.pop("columns", None)}, options)


def range(n: int, *, parallelism: int = -1, override_num_blocks: int | None = None, **_: Any) -> Dataset:
    """The numbers from 0 to n - 1, in the column `id`. `parallelism` is an older name of `override_num_blocks`."""
    n = whole(n, 0, f"range({n!r})", "rows")
    spec = {"format": "range", "n": n, **_per_unit(n, _blocks_asked(override_num_blocks, parallelism))}
    return Dataset(Plan(Read(spec, f"range({n})")))


def _blocks_asked(number: int | None, parallelism: int) -> int | None:
    return parallelism if number is None and parallelism > 0 else number


def range_tensor(
    n: int,
    *,
    shape: Sequence[int] = (1,),
    parallelism: int = -1,
    override_num_blocks: int | None = None,
    **_: Any,
) -> Dataset:
    """Tensors of this shape, each full of its number, in the column `data`."""
    n = whole(n, 0, f"range_tensor({n!r})", "rows")
    blocks = _blocks_asked(override_num_blocks, parallelism)
    spec = {"format": "range", "n": n, "shape": list(shape), **_per_unit(n, blocks)}
    return Dataset(Plan(Read(spec, f"range_tensor({n})")))


def _per_unit(n: int, blocks: int | None) -> dict[str, int]:
    if blocks is None:
        return {}
    blocks = whole(blocks, 1, f"override_num_blocks={blocks!r}", "blocks")
    return {"per_unit": max(-(-n // blocks), 1)}


def from_items(
    items: Sequence[Any], *, parallelism: int = -1, override_num_blocks: int | None = None, **_: Any
) -> Dataset:
    """Dictionaries as rows; anything else in the column `item`."""
    items = list(items)
    rows = [item if isinstance(item, Mapping) else {"item": item} for item in items]
    blocks = [_convert.of_rows(rows[at : at + _ROWS_IN_A_BLOCK]) for at in _steps(len(rows))]
    number = _blocks_asked(override_num_blocks, parallelism)
    return _in_memory(blocks, f"from_items({len(items)})", None if number is None else min(number, max(len(rows), 1)))


def _in_memory(blocks: Sequence[Block], name: str, number: int | None) -> Dataset:
    """These blocks, or as many as are asked for."""
    if number is not None:
        number = whole(number, 1, f"override_num_blocks={number!r}", "blocks")
        joined = Block.concat(list(blocks)) if blocks else Block.of_columns([], 0)
        rows = -(-len(joined) // number)
        begins = [min(place * rows, len(joined)) for place in _steps(number, 1)]
        blocks = [joined.slice(begin, min(rows, len(joined) - begin)) for begin in begins]
    return MaterializedDataset(Plan(Memory(tuple(blocks), name)))


def from_blocks(blocks: Sequence[Any]) -> Dataset:
    """Blocks as they are: data frames, tables of pyarrow, or dictionaries of arrays."""
    made = [Block.concat(parts) if len(parts := _convert.of_batch(block)) != 1 else parts[0] for block in blocks]
    return _in_memory(made, "from_blocks", None)


def _steps(rows: int, length: int = _ROWS_IN_A_BLOCK) -> Iterable[int]:
    import builtins

    return builtins.range(0, rows, length)


def _cut(block: Block) -> list[Block]:
    return [block.slice(at, min(_ROWS_IN_A_BLOCK, len(block) - at)) for at in _steps(len(block))] or [block]


def from_numpy(
    ndarrays: "numpy.ndarray[Any, Any] | Sequence[numpy.ndarray[Any, Any]] | Mapping[str, numpy.ndarray[Any, Any]]",
    column: str = "data",
) -> Dataset:
    """Arrays, whose first axis is the rows, in the column `data`; or a dictionary of columns."""
    arrays = ndarrays if isinstance(ndarrays, list | tuple) else [ndarrays]
    wrong = next((one for one in arrays if isinstance(one, str | bytes) or not isinstance(one, Iterable)), None)
    if wrong is not None:
        raise ConfigTypeError(
            f"`from_numpy` wants an array or a list of arrays, and was given {wrong!r}",
            hints=["`from_items` takes a list of values, and `np.array` makes an array of it"],
        )
    columns = [one if isinstance(one, Mapping) else {column: one} for one in arrays]
    return _in_memory([block for one in columns for block in _cut(_convert.of_columns(one))], "from_numpy", None)


def from_pandas(
    dfs: "pandas.DataFrame | Sequence[pandas.DataFrame]", override_num_blocks: int | None = None, **_: Any
) -> Dataset:
    frames = dfs if isinstance(dfs, list | tuple) else [dfs]
    wrong = next((one for one in frames if not (hasattr(one, "iloc") and hasattr(one, "columns"))), None)
    if wrong is not None:
        raise ConfigTypeError(
            f"`from_pandas` wants a data frame or a list of them, not {type(wrong).__name__}",
            hints=["`from_items` takes rows, and `from_numpy` a dictionary of columns"],
        )
    blocks = [block for frame in frames for block in _cut(_convert.of_pandas(frame))]
    return _in_memory(blocks, "from_pandas", override_num_blocks)


def from_arrow(tables: Any, *, override_num_blocks: int | None = None, **_: Any) -> Dataset:
    """Tables of pyarrow, or of anything else that speaks Arrow's interface."""
    several = tables if isinstance(tables, list | tuple) else [tables]
    blocks = [cut for table in several for block in _convert.of_arrow(table) for cut in _cut(block)]
    return _in_memory(blocks, "from_arrow", override_num_blocks)


def from_huggingface(dataset: Any, **_: Any) -> Dataset:
    """A data set of the Hugging Face library; one that streams is read at once, when it is first wanted."""
    if isinstance(dataset, Mapping):
        raise ConfigError(
            f"this is a dictionary of data sets: {', '.join(map(str, dataset))}",
            hints=[f"take one of them: `from_huggingface(ds[{next(iter(dataset), 'train')!r}])`"],
        )
    if not hasattr(dataset, "with_format"):
        raise ConfigTypeError(
            f"`from_huggingface` was given {type(dataset).__name__}: it must be a data set of the library `datasets`",
            hints=["`from_arrow`, `from_pandas`, `from_torch` and `from_items` take what others hold"],
        )
    tables = dataset.with_format("arrow")
    if hasattr(dataset, "__len__"):
        return from_arrow(tables[:])

    def make() -> list[Block]:
        return [block for table in tables.iter(_ROWS_IN_A_BLOCK) for block in _convert.of_arrow(table)]

    return Dataset(Plan(Derived(make, "from_huggingface")))


def from_torch(dataset: Any, **_: Any) -> Dataset:
    """A data set of torch: each sample in the column `item`, or a column for each key of a dictionary.

    The samples of a map-style one are made when they are wanted, in processes of a pool; an iterable one is read at once.
    """
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        spec = {"format": "range", "n": len(dataset), "per_unit": _SAMPLES_IN_A_UNIT}
        numbers = Dataset(Plan(Read(spec, type(dataset).__name__)))
        made = numbers.map_batches(_Samples, fn_constructor_args=(dataset,), batch_format="numpy", batch_size=None)
        return _standing_for(made, "from_torch", dataset)

    def make() -> list[Block]:
        samples = iter(dataset)
        blocks = []
        while some := list(itertools.islice(samples, _ROWS_IN_A_BLOCK)):
            blocks.append(_of_samples(some))
        return blocks

    return Dataset(Plan(Derived(make, "from_torch")))


class _Samples:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self, numbers: Mapping[str, Any]) -> Block:
        return _of_samples([self._dataset[int(number)] for number in numbers["id"]])


def _of_samples(samples: Sequence[Any]) -> Block:
    if any(isinstance(sample, tuple) for sample in samples):
        return _convert.of_objects("item", samples)
    return _convert.of_rows([sample if isinstance(sample, Mapping) else {"item": sample} for sample in samples])


class ReadTask:
    """A function that gives batches; `metadata` is what Ray wants to know of them."""

    def __init__(self, read_fn: "Callable[[], Iterable[Any]]", metadata: Any = None, **_: Any) -> None:
        self._read, self.metadata = read_fn, metadata

    def __call__(self) -> Iterable[Any]:
        return self._read()


class Datasource(ABC):
    """The user's own source: `get_read_tasks` gives functions, each of which gives batches."""

    @abstractmethod
    def get_read_tasks(self, parallelism: int) -> "Sequence[Callable[[], Iterable[Any]]]": ...

    def estimate_inmemory_data_size(self) -> int | None:
        return None


def read_datasource(datasource: Datasource, **options: Any) -> Dataset:
    """What the tasks of a source give: each is run in a process of a pool."""
    tasks = list(datasource.get_read_tasks(int(options.get("parallelism", -1))))
    numbers = Dataset(Plan(Read({"format": "range", "n": len(tasks), "per_unit": 1}, type(datasource).__name__)))
    made = numbers.map_batches(_RunTask, fn_constructor_args=(tasks,), batch_format="numpy")
    return _standing_for(made, "read_datasource", datasource)


def _standing_for(made: Dataset, method: str, given: Any) -> Dataset:
    """The same; an error names what the user called and gave, and not the function of ours."""
    *before, last = made._plan.steps
    assert isinstance(last, Operation)
    step = replace(last, stands_for=(method, type(given).__name__))
    return Dataset(replace(made._plan, steps=(*before, step)))


class _RunTask:
    def __init__(self, tasks: Sequence[Callable[[], Iterable[Any]]]) -> None:
        self._tasks = tasks

    def __call__(self, numbers: Mapping[str, Any]) -> Iterable[Any]:
        for number in numbers["id"]:
            yield from self._tasks[int(number)]()
