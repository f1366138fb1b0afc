"""Data for training: read, changed, shuffled, split and handed over in batches."""

from typing import NoReturn

from carril.data._schema import Schema
from carril.data._sink import Datasink, TaskContext, WriteResult
from carril.data._write import FilenameProvider, SaveMode
from carril.data.context import (
    ActorPoolStrategy,
    DataContext,
    ExecutionOptions,
    ExecutionResources,
    TaskPoolStrategy,
)
from carril.data.dataset import Dataset, MaterializedDataset
from carril.data.iterator import DataIterator
from carril.data.partitioning import Partitioning, PartitionStyle, PathPartitionFilter, PathPartitionParser
from carril.data.read_api import (
    Datasource,
    FileShuffleConfig,
    ReadTask,
    from_arrow,
    from_blocks,
    from_huggingface,
    from_items,
    from_numpy,
    from_pandas,
    from_torch,
    range,
    range_tensor,
    read_binary_files,
    read_csv,
    read_datasource,
    read_images,
    read_ipc,
    read_json,
    read_numpy,
    read_parquet,
    read_text,
    read_tfrecords,
    read_webdataset,
)
from carril.exceptions import NotAvailableError

__all__ = [
    "ActorPoolStrategy",
    "DataContext",
    "DataIterator",
    "Dataset",
    "Datasink",
    "Datasource",
    "ExecutionOptions",
    "ExecutionResources",
    "FileShuffleConfig",
    "FilenameProvider",
    "MaterializedDataset",
    "PartitionStyle",
    "Partitioning",
    "PathPartitionFilter",
    "PathPartitionParser",
    "ReadTask",
    "SaveMode",
    "Schema",
    "TaskContext",
    "TaskPoolStrategy",
    "WriteResult",
    "from_arrow",
    "from_blocks",
    "from_huggingface",
    "from_items",
    "from_numpy",
    "from_pandas",
    "from_torch",
    "range",
    "range_tensor",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_images",
    "read_ipc",
    "read_json",
    "read_numpy",
    "read_parquet",
    "read_text",
    "read_tfrecords",
    "read_webdataset",
]


def __getattr__(name: str) -> NoReturn:
    from carril.data._later import FUNCTIONS

    if name in FUNCTIONS:
        raise NotAvailableError(
            f"`carril.data.{name}` is not built yet",
            hints=["`from_arrow` and `from_pandas` take what another library has read"],
        )
    raise AttributeError(f"module 'carril.data' has no attribute {name!r}")
