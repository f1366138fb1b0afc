"""What Ray's data sets and `ray.data` have besides: these names say that they are not built yet."""

_BATCHES = "`iter_torch_batches()` has tensors of torch, and `iter_batches()` arrays that other frameworks take"
_FILES = (
    "`write_parquet`, `write_csv` and `write_json` write files; a function in `map_batches` can write what it likes"
)
_LIBRARIES = "write files with `write_parquet()`, which it reads, or go by `to_pandas()`"
_PANDAS = "`to_pandas()` has all rows in memory: pandas can do it"

# Each with what does about the same.
METHODS = {
    "aggregate": _PANDAS,
    "explain": "`stats()` tells what was done",
    "get_dataset_id": "a data set has no id: give it a name by the key of `datasets`",
    "groupby": _PANDAS,
    "iter_jax_batches": _BATCHES,
    "iter_tf_batches": _BATCHES,
    "join": _PANDAS,
    "max": _PANDAS,
    "mean": _PANDAS,
    "min": _PANDAS,
    "mix": "`union()` has the rows of several data sets, one after the other",
    "set_name": "a data set has no name of its own: it is named by its key in `datasets`",
    "sort": _PANDAS,
    "std": _PANDAS,
    "sum": _PANDAS,
    "summary": _PANDAS,
    "to_daft": _LIBRARIES,
    "to_dask": _LIBRARIES,
    "to_mars": _LIBRARIES,
    "to_modin": _LIBRARIES,
    "to_numpy_refs": "`iter_batches(batch_size=None)` has dictionaries of arrays",
    "to_pandas_refs": '`iter_batches(batch_size=None, batch_format="pandas")` has data frames',
    "to_random_access_dataset": "`to_pandas()` has all rows in memory",
    "to_spark": _LIBRARIES,
    "to_tf": _BATCHES,
    "to_torch": _BATCHES,
    "with_column": "`add_column(name, fn)` adds a column by a function of a batch",
    "with_columns": "`add_column(name, fn)` adds a column by a function of a batch",
    "write_bigquery": _FILES,
    "write_clickhouse": _FILES,
    "write_delta": _FILES,
    "write_iceberg": _FILES,
    "write_images": _FILES,
    "write_kafka": _FILES,
    "write_lance": _FILES,
    "write_mongo": _FILES,
    "write_numpy": _FILES,
    "write_orc": _FILES,
    "write_snowflake": _FILES,
    "write_sql": _FILES,
    "write_tfrecords": _FILES,
    "write_turbopuffer": _FILES,
    "write_webdataset": _FILES,
}

FUNCTIONS = frozenset(
    [
        "from_arrow_refs",
        "from_daft",
        "from_dask",
        "from_mars",
        "from_modin",
        "from_numpy_refs",
        "from_pandas_refs",
        "from_spark",
        "from_tf",
        "read_audio",
        "read_avro",
        "read_bigquery",
        "read_clickhouse",
        "read_databricks_tables",
        "read_delta",
        "read_delta_sharing_tables",
        "read_hudi",
        "read_iceberg",
        "read_kafka",
        "read_lance",
        "read_mcap",
        "read_mongo",
        "read_orc",
        "read_parquet_bulk",
        "read_snowflake",
        "read_sql",
        "read_unity_catalog",
        "read_videos",
        "read_zarr",
    ]
)
