"""Names and types of columns."""

from typing import Any

from carril._native import Block
from carril.data import _convert


class Schema:
    """Names and types of columns: of a data set, or as a schema of pyarrow has them."""

    def __init__(self, base_schema: Any) -> None:
        self._block = base_schema if isinstance(base_schema, Block) else None
        self._given = None if isinstance(base_schema, Block) else base_schema

    @property
    def names(self) -> list[str]:
        return list(self._given.names) if self._block is None else self._block.names  # type: ignore[union-attr]

    @property
    def types(self) -> list[Any]:
        """Those of pyarrow, and their names where it is not installed; `object` for objects of Python."""
        if self._block is not None and _convert.OBJECT in self._block.types:
            known = [name for name, kind in zip(self.names, self._block.types, strict=True) if kind != _convert.OBJECT]
            types = dict(zip(known, Schema(self._block.project([(name, name) for name in known])).types, strict=True))
            return [types.get(name, object) for name in self.names]
        try:
            return list(self.base_schema.types)
        except ImportError:
            return self._block.types if self._block is not None else []

    @property
    def base_schema(self) -> Any:
        """As pyarrow has it."""
        if self._block is None:
            return self._given
        import pyarrow

        return pyarrow.table(self._block).schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and (self.names, self.types) == (other.names, other.types)

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __str__(self) -> str:
        kinds = self._block.types if self._block is not None else map(str, self.types)
        return "{" + ", ".join(f"{name}: {kind}" for name, kind in zip(self.names, kinds, strict=True)) + "}"

    def __repr__(self) -> str:
        width = max([len("Column"), *map(len, self.names)])
        kinds = ["object" if kind is object else str(kind) for kind in self.types]
        rows = [("Column", "Type"), ("------", "----"), *zip(self.names, kinds, strict=True)]
        return "\n".join(f"{name:<{width}}  {kind}" for name, kind in rows)
