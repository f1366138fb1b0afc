"""Columns that stand in the paths of files, and files that are chosen by them."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from carril.exceptions import ConfigError, ConfigTypeError

__all__ = ["PartitionStyle", "Partitioning", "PathPartitionFilter", "PathPartitionParser"]

_TYPES: dict[Any, str] = {int: "int64", float: "double", bool: "bool", str: "string"}


class PartitionStyle(enum.StrEnum):
    """How columns stand in a path: `/year=2024/month=3/`, or `/2024/3/` with names that are given."""

    HIVE = "hive"
    DIRECTORY = "dir"


@dataclass(frozen=True)
class Partitioning:
    """Which columns stand in paths. `field_types` are Python's: int, float, bool or str."""

    style: PartitionStyle | str
    base_dir: str | None = None
    field_names: Sequence[str] | None = None
    field_types: Mapping[str, type] | None = None
    filesystem: Any = None

    def __post_init__(self) -> None:
        styles = [style.value for style in PartitionStyle]
        if self.style not in styles:
            raise ConfigError(f"unknown partitioning style {self.style!r}: use 'hive' or 'dir'")
        object.__setattr__(self, "style", PartitionStyle(self.style))
        if self.style == PartitionStyle.DIRECTORY and not self.field_names:
            raise ConfigError("partitioning by directories wants `field_names`, one for each directory")
        wrong = [kind for kind in (self.field_types or {}).values() if kind not in _TYPES]
        if wrong:
            raise ConfigTypeError(f"`field_types` has {wrong[0]!r}", hints=["it can be int, float, bool or str"])

    @property
    def normalized_base_dir(self) -> str:
        base = (self.base_dir or "").partition("://")
        path = base[2] if base[1] else base[0]
        return path.rstrip("/") + "/" if path else ""

    def _spec(self) -> dict[str, Any]:
        """As the native half has it."""
        is_named = self.style == PartitionStyle.DIRECTORY
        types = {name: _TYPES[kind] for name, kind in (self.field_types or {}).items()}
        columns = list(self.field_names or ()) if is_named else None
        return {"columns": columns, "base": self.normalized_base_dir, "types": types}


class PathPartitionParser:
    """The values in a path, by column: texts, or of the types that the partitioning has for them."""

    @staticmethod
    def of(
        style: PartitionStyle | str = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: Sequence[str] | None = None,
        field_types: Mapping[str, type] | None = None,
        filesystem: Any = None,
    ) -> "PathPartitionParser":
        return PathPartitionParser(Partitioning(style, base_dir, field_names, field_types, filesystem))

    def __init__(self, partitioning: Partitioning) -> None:
        self._scheme = partitioning

    @property
    def scheme(self) -> Partitioning:
        return self._scheme

    def __call__(self, path: str) -> dict[str, Any]:
        scheme, base = self._scheme, self._scheme.normalized_base_dir
        plain = path.partition("://")[2] if "://" in path else path
        if base and base not in plain:
            return {}
        *directories, _ = plain.partition(base)[2].split("/") if base else plain.split("/")
        directories = [directory for directory in directories if directory]
        if scheme.style == PartitionStyle.HIVE:
            found = dict(directory.split("=", 1) for directory in directories if "=" in directory)
            wrong = scheme.field_names and found and list(found) != list(scheme.field_names)
            if wrong:
                raise ConfigError(f"`{path}` has {list(found)} and should have {list(scheme.field_names or ())}")
        else:
            names = list(scheme.field_names or ())
            if directories and len(directories) != len(names):
                raise ConfigError(f"`{path}` has {len(directories)} directories for {len(names)} columns: {names}")
            found = dict(zip(names, directories, strict=False))
        return {name: self._typed(name, unquote(value)) for name, value in found.items()}

    def _typed(self, name: str, value: str) -> Any:
        kind = (self._scheme.field_types or {}).get(name, str)
        if kind is not bool:
            return kind(value)
        if value.lower() not in ("true", "false", "1", "0"):
            raise ConfigError(f"`{name}` is `{value}` in a path, which is neither true nor false")
        return value.lower() in ("true", "1")


class PathPartitionFilter:
    """Chooses files by what stands in their paths: `filter_fn` is given a dictionary of values."""

    @staticmethod
    def of(
        filter_fn: Callable[[dict[str, Any]], bool],
        style: PartitionStyle | str = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: Sequence[str] | None = None,
        field_types: Mapping[str, type] | None = None,
        filesystem: Any = None,
    ) -> "PathPartitionFilter":
        parser = PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem)
        return PathPartitionFilter(parser, filter_fn)

    def __init__(self, path_partition_parser: PathPartitionParser, filter_fn: Callable[[dict[str, Any]], bool]) -> None:
        self._parser, self._filter = path_partition_parser, filter_fn

    @property
    def parser(self) -> PathPartitionParser:
        return self._parser

    def apply(self, path: str) -> bool:
        return bool(self._filter(self._parser(path)))

    def __call__(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if self.apply(path)]
