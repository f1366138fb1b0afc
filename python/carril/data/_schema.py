"""Names and types of columns."""

from typing import Any

from carril._native import Block


class Schema:
    """Names and types of columns."""

    def __init__(self, block: Block) -> None:
        self._block = block

    @property
    def names(self) -> list[str]:
        return self._block.names

    @property
    def types(self) -> list[str]:
        return self._block.types

    @property
    def base_schema(self) -> Any:
        """As pyarrow has it."""
        import pyarrow

        return pyarrow.table(self._block).schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and (self.names, self.types) == (other.names, other.types)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name}: {kind}" for name, kind in zip(self.names, self.types, strict=True)) + "}"
