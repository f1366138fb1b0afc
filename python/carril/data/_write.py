"""Data sets into files: `write_parquet`, `write_csv` and `write_json`, block by block, by the native writer.

Nothing is left of a write that fails. What Ray has for its tasks (`ray_remote_args`, `concurrency`) has no effect: one
process writes, while others read and transform.
"""

import enum
import inspect
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from carril._native import Block, Writer
from carril.data import _filesystem
from carril.data._numbers import whole
from carril.exceptions import ConfigError, ConfigTypeError, kind_of

if TYPE_CHECKING:
    from carril.data.dataset import Dataset

_WITHOUT_EFFECT = frozenset({"ray_remote_args", "concurrency", "arrow_open_file_args"})
# What pyarrow would do with these is done here always, or has no counterpart.
_PARQUET_WITHOUT_EFFECT = frozenset({"version", "data_page_version", "coerce_timestamps", "allow_truncated_timestamps"})
_FUNCTIONS = ("arrow_parquet_args_fn", "arrow_csv_args_fn", "pandas_json_args_fn")


class SaveMode(enum.Enum):
    """What becomes of files that are there already."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"


class FilenameProvider(ABC):
    """The user's own names of files: `get_filename_for_block` gives one for the block that begins a file."""

    @abstractmethod
    def get_filename_for_block(self, block: Any, write_uuid: str, task_index: int, block_index: int) -> str: ...


def write_parquet(dataset: "Dataset", path: Any, options: dict[str, Any]) -> None:
    chosen = _arguments("write_parquet", options)
    for name in _PARQUET_WITHOUT_EFFECT & set(chosen):
        del chosen[name]
    names = ("compression", "compression_level", "row_group_size", "use_dictionary", "write_statistics")
    _write(dataset, "write_parquet", path, options, _picked("write_parquet", "parquet", chosen, names))


def write_csv(dataset: "Dataset", path: Any, options: dict[str, Any]) -> None:
    chosen = _arguments("write_csv", options)
    given = chosen.pop("write_options", None)
    for name in ("include_header", "delimiter", "quoting_style"):
        value = given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
        if value is not None:
            chosen.setdefault(name, value)
    names = ("include_header", "delimiter", "quoting_style", "compression")
    _write(dataset, "write_csv", path, options, _picked("write_csv", "csv", chosen, names))


def write_json(dataset: "Dataset", path: Any, options: dict[str, Any]) -> None:
    chosen = _arguments("write_json", options)
    if chosen.pop("orient", "records") != "records":
        raise ConfigError('`write_json` writes rows as dictionaries: `orient` can only be "records"')
    chosen["is_array"] = not chosen.pop("lines", True)
    _write(dataset, "write_json", path, options, _picked("write_json", "json", chosen, ("is_array", "compression")))


def _arguments(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Takes from `options` what is for the format; a compression may stand among what Arrow opens files with."""
    known = {
        "filesystem",
        "try_create_dir",
        "filename_provider",
        "partition_cols",
        "min_rows_per_file",
        "max_rows_per_file",
        "num_rows_per_file",
        "mode",
        *_WITHOUT_EFFECT,
    }
    chosen: dict[str, Any] = {}
    for name in _FUNCTIONS:
        make: Callable[[], Mapping[str, Any]] | None = options.pop(name, None)
        if make is not None:
            chosen.update(make())
    streams = options.pop("arrow_open_stream_args", None) or {}
    if "compression" in streams:
        chosen["compression"] = streams["compression"]
    for name in [name for name in options if name not in known]:
        chosen[name] = options.pop(name)
    return chosen


def _picked(method: str, format: str, chosen: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise ConfigTypeError(
            f"`{method}` has no option `{unknown[0]}`",
            hints=["of the format it knows " + ", ".join(f"`{name}`" for name in names)],
        )
    return {"name": format, **{name: value for name, value in chosen.items() if value is not None}}


def _write(dataset: "Dataset", method: str, path: Any, options: dict[str, Any], format: dict[str, Any]) -> None:
    write_id = uuid.uuid4().hex
    rows = _rows(method, options)
    # A file for each block where the user has said how many there are: a file is full with its first block.
    is_file_per_block = dataset._plan.is_repartitioned and not rows
    spec = {
        "format": format,
        "id": write_id,
        "mode": _mode(options.pop("mode", None)),
        "partition_columns": _columns(options.pop("partition_cols", None)),
        "makes_directory": bool(options.pop("try_create_dir", True)),
        **({"min_rows_per_file": 1} if is_file_per_block else rows),
    }
    provider = options.pop("filename_provider", None)
    with _place(path, options.pop("filesystem", None)) as place:
        writer = Writer.open(json.dumps(spec | place))
        if writer is None:
            return
        try:
            for number, block in enumerate(_blocks(dataset, is_file_per_block)):
                writer.write(block, None if provider is None else _name(provider, block, write_id, number))
            writer.finish(dataset._empty())
        except BaseException:
            writer.give_up()
            raise


def _blocks(dataset: "Dataset", are_whole: bool) -> Iterable[Block]:
    """With rows. A pass would cut large ones."""
    blocks = dataset._plan.origin.make() if are_whole else dataset._all_blocks()  # type: ignore[union-attr]
    return (block for block in blocks if len(block) > 0)


def _mode(mode: Any) -> str:
    name = getattr(mode, "value", mode)
    name = "append" if name is None else str(name).lower()
    if name not in [known.value for known in SaveMode]:
        raise ConfigError(
            f"nothing is known of `mode={mode!r}`", hints=['there are "append", "overwrite", "ignore" and "error"']
        )
    return name


def _columns(columns: Any) -> list[str]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


def _rows(method: str, options: dict[str, Any]) -> dict[str, int]:
    # The older name of the least number.
    least, most = options.pop("min_rows_per_file", None), options.pop("max_rows_per_file", None)
    older = options.pop("num_rows_per_file", None)
    if least is not None and older is not None:
        raise ConfigError(f"`{method}` was given `min_rows_per_file` and its older name `num_rows_per_file`")
    wanted = {"min_rows_per_file": older if least is None else least, "max_rows_per_file": most}
    given = {name: rows for name, rows in wanted.items() if rows is not None}
    return {name: whole(rows, 1, f"{name}={rows!r}", "rows") for name, rows in given.items()}


def _name(provider: Any, block: Block, write_id: str, number: int) -> str:
    make = getattr(provider, "get_filename_for_block", None)
    if make is None:
        raise ConfigTypeError(f"`filename_provider` is {kind_of(provider)}: it has no `get_filename_for_block`")
    # Older providers are not told of the write.
    told = (write_id, 0, number) if "write_uuid" in inspect.signature(make).parameters else (0, number)
    name = make(block, *told)
    if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
        raise ConfigError(f"`get_filename_for_block` gave `{name!r}`, which is no name of a file")
    return name


@contextmanager
def _place(path: Any, filesystem: Any) -> Iterator[dict[str, Any]]:
    """Where the native half writes. A file system object is opened by another process, which gets it pickled."""
    from carril.train._locations import checked_filesystem, location, path_in_filesystem

    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(text, str):
        text = text.removeprefix("local://")
    given = checked_filesystem(filesystem, "filesystem")
    if given is None:
        yield {"path": location(text, "path")}
        return
    file, how = _filesystem.opened(_filesystem.pickled(given))
    with file:
        yield {"path": path_in_filesystem(text, "path"), "filesystem": how}
