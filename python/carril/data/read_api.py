"""Where data sets come from: files, memory, other libraries."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from carril._native import Block
from carril.data import _convert
from carril.data._plan import Derived, Memory, Plan, Read
from carril.data.dataset import Dataset, MaterializedDataset
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError

if TYPE_CHECKING:
    import numpy
    import pandas

_ROWS_IN_A_BLOCK = 65_536
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

Paths = str | Sequence[str]


def _read(format: str, paths: Paths, options: dict[str, Any], given: dict[str, Any]) -> Dataset:
    """`options` are the reader's own; of `given` what every reader knows is taken."""
    files = {
        "include_paths": given.pop("include_paths", False),
        "ignore_missing_paths": given.pop("ignore_missing_paths", False),
        "file_extensions": given.pop("file_extensions", None),
        "max_errors": given.pop("max_errors", 0),
    }
    if given.pop("partitioning", True) is None:
        files["partitioning"] = False
    if given.pop("filesystem", None) is not None:
        raise NotAvailableError(
            f"`read_{format}(filesystem=…)` is not built yet",
            hints=["give a URI: `s3://bucket/path`, with the credentials in the environment"],
        )
    if given.pop("partition_filter", None) is not None:
        raise NotAvailableError(f"`read_{format}(partition_filter=…)` is not built yet", hints=["use `filter`"])
    shuffle = given.pop("shuffle", None)
    unknown = set(given) - _WITHOUT_EFFECT
    if unknown:
        raise ConfigTypeError(f"`read_{format}` knows no `{sorted(unknown)[0]}`")
    listed = [str(paths)] if isinstance(paths, str) or hasattr(paths, "__fspath__") else [str(path) for path in paths]
    if not listed:
        raise ConfigError(f"`read_{format}` was given no path")
    spec: dict[str, Any] = {"format": format, "paths": listed, "files": {k: v for k, v in files.items() if v}}
    spec["options"] = {name: value for name, value in options.items() if value is not None}
    made = Dataset(Plan(Read(spec, f"read_{format}({listed[0] if len(listed) == 1 else f'{len(listed)} paths'})")))
    # What is wrong with the paths is told here, and not when the rows are wanted.
    made._open()
    return made if shuffle is None else made.randomize_block_order()


def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Dataset:
    """Parquet files. `filter` is a list of comparisons: `[("x", ">", 3)]`."""
    chosen = {"columns": list(columns) if columns is not None else None, "filter": filter}
    return _read("parquet", paths, chosen, options)


def read_csv(paths: Paths, **options: Any) -> Dataset:
    """CSV files; `delimiter`, `column_types` and the like are the reader's."""
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
    return _read("csv", paths, {name: options.pop(name, None) for name in names}, options)


def read_json(paths: Paths, *, lines: bool = False, **options: Any) -> Dataset:
    """JSON: a value in each line, or an array of them in a file; which of the two is seen."""
    chosen = {name: options.pop(name, None) for name in ("columns", "column_types")}
    return _read("json", paths, chosen, options)


def read_text(paths: Paths, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Any) -> Dataset:
    """A row for each line, in the column `text`."""
    chosen = {"encoding": encoding, "drop_empty_lines": drop_empty_lines}
    return _read("text", paths, chosen, options)


def read_images(
    paths: Paths, *, size: tuple[int, int] | None = None, mode: str | None = None, **options: Any
) -> Dataset:
    """Images as tensors in the column `image`; with `size` (height, width) all of one shape."""
    return _read("images", paths, {"size": list(size) if size is not None else None, "mode": mode}, options)


def read_binary_files(paths: Paths, **options: Any) -> Dataset:
    """A row for each file, in the column `bytes`."""
    return _read("binary", paths, {}, options)


def read_numpy(paths: Paths, **options: Any) -> Dataset:
    """`.npy` files, in the column `data`."""
    return _read("numpy", paths, {}, options)


def read_tfrecords(paths: Paths, **options: Any) -> Dataset:
    """Records of `tf.train.Example`."""
    return _read("tfrecord", paths, {}, options)


def read_webdataset(paths: Paths, **options: Any) -> Dataset:
    """Samples in tar files."""
    decode = options.pop("decoder", options.pop("decode", True))
    return _read("webdataset", paths, {"decode": bool(decode)}, options)


def read_ipc(paths: Paths, **options: Any) -> Dataset:
    """Arrow's own files and streams."""
    return _read("ipc", paths, {}, options)


def range(n: int, **_: Any) -> Dataset:
    """The numbers from 0 to n - 1, in the column `id`."""
    return Dataset(Plan(Read({"format": "range", "n": _rows(n)}, f"range({n})")))


def range_tensor(n: int, *, shape: Sequence[int] = (1,), **_: Any) -> Dataset:
    """Tensors of this shape, each full of its number, in the column `data`."""
    spec = {"format": "range", "n": _rows(n), "shape": list(shape)}
    return Dataset(Plan(Read(spec, f"range_tensor({n})")))


def _rows(n: int) -> int:
    if not isinstance(n, int) or n < 0:
        raise ConfigError(f"`{n!r}` is no number of rows")
    return n


def from_items(items: Sequence[Any], **_: Any) -> Dataset:
    """Dictionaries as rows; anything else in the column `item`."""
    items = list(items)
    rows = [item if isinstance(item, Mapping) else {"item": item} for item in items]
    blocks = [_convert.of_rows(rows[at : at + _ROWS_IN_A_BLOCK]) for at in _steps(len(rows))]
    return MaterializedDataset(Plan(Memory(tuple(blocks), f"from_items({len(items)})")))


def _steps(rows: int) -> Iterable[int]:
    import builtins

    return builtins.range(0, rows, _ROWS_IN_A_BLOCK)


def _cut(block: Block) -> list[Block]:
    return [block.slice(at, min(_ROWS_IN_A_BLOCK, len(block) - at)) for at in _steps(len(block))] or [block]


def from_numpy(
    ndarrays: "numpy.ndarray[Any, Any] | Sequence[numpy.ndarray[Any, Any]]", column: str = "data"
) -> Dataset:
    """Arrays, whose first axis is the rows, in the column `data`."""
    arrays = ndarrays if isinstance(ndarrays, list | tuple) else [ndarrays]
    blocks = [block for array in arrays for block in _cut(_convert.of_numpy({column: array}))]
    return MaterializedDataset(Plan(Memory(tuple(blocks), "from_numpy")))


def from_pandas(dfs: "pandas.DataFrame | Sequence[pandas.DataFrame]", **_: Any) -> Dataset:
    frames = dfs if isinstance(dfs, list | tuple) else [dfs]
    blocks = [block for frame in frames for block in _cut(_convert.of_pandas(frame))]
    return MaterializedDataset(Plan(Memory(tuple(blocks), "from_pandas")))


def from_arrow(tables: Any, **_: Any) -> Dataset:
    """Tables of pyarrow, or of anything else that speaks Arrow's interface."""
    several = tables if isinstance(tables, list | tuple) else [tables]
    blocks = [cut for table in several for block in _convert.of_arrow(table) for cut in _cut(block)]
    return MaterializedDataset(Plan(Memory(tuple(blocks), "from_arrow")))


def from_huggingface(dataset: Any, **_: Any) -> Dataset:
    """A data set of the Hugging Face library."""
    if isinstance(dataset, Mapping):
        raise ConfigError(
            f"this is a dictionary of data sets: {', '.join(map(str, dataset))}",
            hints=[f"take one of them: `from_huggingface(ds[{next(iter(dataset), 'train')!r}])`"],
        )
    table = dataset.with_format("arrow")[:] if hasattr(dataset, "with_format") else dataset
    return from_arrow(table)


def from_torch(dataset: Any, **_: Any) -> Dataset:
    """A map-style or an iterable data set of torch: each sample in the column `item`, or a column for each key."""

    def make() -> list[Block]:
        if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
            import builtins

            samples: Iterable[Any] = (dataset[number] for number in builtins.range(len(dataset)))
        else:
            samples = iter(dataset)
        blocks = []
        rows = (sample if isinstance(sample, Mapping) else {"item": sample} for sample in samples)
        while some := list(itertools.islice(rows, _ROWS_IN_A_BLOCK)):
            blocks.append(_convert.of_rows(some))
        return blocks

    return Dataset(Plan(Derived(make, "from_torch")))


class ReadTask:
    """A function that gives batches; `metadata` is what Ray wants to know of them."""

    def __init__(self, read_fn: "Callable[[], Iterable[Any]]", metadata: Any = None, **_: Any) -> None:
        self._read, self.metadata = read_fn, metadata

    def __call__(self) -> Iterable[Any]:
        return self._read()


class Datasource:
    """The user's own source: `get_read_tasks` gives functions, each of which gives batches."""

    def get_read_tasks(self, parallelism: int) -> "Sequence[Callable[[], Iterable[Any]]]":
        raise NotImplementedError("`get_read_tasks` is for your own class to write")

    def estimate_inmemory_data_size(self) -> int | None:
        return None


def read_datasource(datasource: Datasource, **options: Any) -> Dataset:
    """What the tasks of a source give: each is run in a process of a pool."""
    tasks = list(datasource.get_read_tasks(int(options.get("parallelism", -1))))
    numbers = Dataset(Plan(Read({"format": "range", "n": len(tasks), "per_unit": 1}, type(datasource).__name__)))
    return numbers.map_batches(_RunTask, fn_constructor_args=(tasks,), batch_format="numpy")


class _RunTask:
    def __init__(self, tasks: Sequence[Callable[[], Iterable[Any]]]) -> None:
        self._tasks = tasks

    def __call__(self, numbers: Mapping[str, Any]) -> Iterable[Any]:
        for number in numbers["id"]:
            yield from self._tasks[int(number)]()
