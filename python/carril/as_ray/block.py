"""`ray.data.block`: what a source of one's own says of its tasks, and types for annotations."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Block", "BlockMetadata"]

Block = Any  # a pyarrow Table, a pandas DataFrame, or a dict of arrays


@dataclass
class BlockMetadata:
    """What Ray wants to know of a task before it runs. Carril reads what the task gives."""

    num_rows: int | None = None
    size_bytes: int | None = None
    input_files: list[str] | None = None
    exec_stats: Any = None
    schema: Any = None
