"""`ray.data.datasource`: what a source of one's own is made of."""

from carril.as_ray import missing as _missing
from carril.data import Datasource, FilenameProvider, ReadTask, SaveMode

__all__ = ["Datasource", "FilenameProvider", "ReadTask", "SaveMode"]

__getattr__ = _missing.attributes(
    "ray.data.datasource",
    (
        "BlockBasedFileDatasink",
        "Datasink",
        "FileBasedDatasource",
        "FileShuffleConfig",
        "PartitionStyle",
        "Partitioning",
        "PathPartitionFilter",
        "PathPartitionParser",
        "Reader",
        "RowBasedFileDatasink",
        "WriteResult",
    ),
)
