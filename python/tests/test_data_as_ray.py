"""What scripts for Ray's data sets rely on: types of columns, errors, blocks, partitions in paths, rows that come together."""

import asyncio
import copy
import gzip
import io
import json
import pickle
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json as pj
import pytest
from data_tables import case

import carril.as_ray
from carril import data
from carril.as_ray import exceptions as ray_exceptions
from carril.exceptions import ConfigError, NoColumnError, UserCodeError


@pytest.fixture
def as_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARRIL_AS_RAY", "1")


def test_the_types_of_a_schema_are_those_of_pyarrow() -> None:
    schema = data.from_items([{"a": 1, "b": "x", "c": [1.5]}]).schema()
    assert schema is not None
    assert schema.types == [pa.int64(), pa.string(), pa.list_(pa.float64())]
    assert schema == data.Schema(pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.float64()))]))
    assert schema != data.Schema(pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.float64()))]))
    assert repr(data.from_items([{"long name": 1, "b": "x"}]).schema()) == (
        "Column     Type\n------     ----\nlong name  int64\nb          string"
    )
    mixed = data.from_items([{"a": object, "n": 1}]).schema()
    assert mixed is not None and mixed.types == [object, pa.int64()]


def test_as_many_blocks_as_are_asked_for() -> None:
    table, frame = pa.table({"a": range(10)}), pd.DataFrame({"a": [1]})
    made = {
        "a table": (data.from_arrow(table, override_num_blocks=4), [3, 3, 3, 1]),
        "tables": (data.from_arrow([table, table], override_num_blocks=2), [10, 10]),
        "as they are": (data.from_arrow([table, table]), [10, 10]),
        "items": (data.from_items(list(range(10)), override_num_blocks=3), [4, 4, 2]),
        "fewer items": (data.from_items([1], override_num_blocks=5), [1]),
        "blocks": (data.from_blocks([frame, pa.table({"a": [2, 3]}), {"a": np.array([4])}]), [1, 2, 1]),
    }
    for name, (dataset, rows) in made.items():
        with case(name):
            assert dataset.num_blocks() == len(rows)
            assert [
                len(batch["a" if "a" in batch else "item"]) for batch in dataset.iter_batches(batch_size=None)
            ] == rows
            assert isinstance(dataset, data.MaterializedDataset)
    assert data.from_pandas(frame, override_num_blocks=2).num_blocks() == 2
    assert data.from_pandas([frame] * 3, override_num_blocks=2).num_blocks() == 2
    with pytest.raises(ConfigError, match="override_num_blocks=0"):
        data.from_arrow(table, override_num_blocks=0)


class OfMyOwn(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.first = first

    def __reduce__(self) -> tuple[Any, ...]:
        return OfMyOwn, (self.first, 2)


def test_an_error_of_a_function_is_ray_s_and_also_what_it_raised() -> None:
    def wrong(row: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("which")

    def own(row: dict[str, Any]) -> dict[str, Any]:
        raise OfMyOwn(1, 2)

    with pytest.raises(ray_exceptions.RayTaskError) as caught:
        data.range(3).map(wrong).take_all()
    assert isinstance(caught.value, KeyError) and isinstance(caught.value, UserCodeError)
    assert isinstance(caught.value.cause, KeyError) and "failed in row 0" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, KeyError) and isinstance(again, UserCodeError) and str(again) == str(caught.value)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        data.range(3).map(lambda row: {"x": Path("/nowhere").read_text()}).take_all()
    with pytest.raises(OfMyOwn) as mine:
        data.range(3).map(own).take_all()
    assert isinstance(mine.value, UserCodeError) and mine.value.cause.first == 1  # type: ignore[union-attr]


def test_what_a_function_must_not_return_is_a_value_error() -> None:
    wrong = {
        "map": data.range(3).map(lambda row: 1),  # type: ignore[arg-type,return-value]
        "map_batches": data.range(3).map_batches(lambda batch: 1),
        "a number for a column": data.range(3).map_batches(lambda batch: {"a": 1}),
        "unequal": data.range(3).map_batches(lambda batch: {"a": [1, 2], "b": [1]}),
        "flat_map": data.range(3).flat_map(lambda row: {"a": 1}),  # type: ignore[arg-type,return-value]
        "flat_map of numbers": data.range(3).flat_map(lambda row: [1]),  # type: ignore[arg-type,list-item]
        "batches one by one": data.range(3).map_batches(lambda batch: iter([1])),
    }
    for name, dataset in wrong.items():
        with case(name), pytest.raises(ValueError) as caught:
            dataset.take_all()
        assert isinstance(caught.value, UserCodeError), name


def test_a_column_that_is_not_there_is_a_key_error() -> None:
    for name, make in {
        "drop_columns": lambda ds: ds.drop_columns(["foo"]),
        "later": lambda ds: ds.map(lambda row: row).drop_columns(["foo"]).take_all(),
        "select_columns": lambda ds: ds.select_columns(["foo"]).take_all(),
        "rename_columns": lambda ds: ds.rename_columns({"foo": "bar"}).take_all(),
        "unique": lambda ds: ds.unique("foo"),
    }.items():
        with case(name), pytest.raises(KeyError, match="foo") as caught:
            make(data.range(3))
        assert isinstance(caught.value, NoColumnError), name


def test_names_of_columns_are_names() -> None:
    ds = data.from_items([{"a": 1, "b": 2}])
    for wrong in ([1], 1, None):
        for method in (ds.select_columns, ds.drop_columns, ds.rename_columns):
            with case((method, wrong)), pytest.raises((ValueError, TypeError), match="name"):
                method(wrong)  # type: ignore[arg-type]
    for names in ({}, {"a": 1}, ["x"], {"a": "x", "b": "x"}):
        with case(names), pytest.raises(ValueError):
            ds.rename_columns(names)  # type: ignore[arg-type]
    assert ds.rename_columns({"a": "b", "b": "a"}).take_all() == [{"b": 1, "a": 2}]


def batches(dataset: data.Dataset, size: int | None) -> list[int]:
    made = dataset.map_batches(lambda batch: {"n": [len(batch["id"])]}, batch_size=size)
    return [row["n"] for row in made.take_all()]


def test_small_blocks_are_joined_to_a_batch(tmp_path: Path) -> None:
    small = data.range(10, override_num_blocks=10)
    assert batches(small, 4) == [4, 4, 2]
    assert batches(small, None) == [1] * 10
    assert batches(data.range(30, override_num_blocks=3), 7) == [7, 3] * 3, "a block that is large enough is by itself"
    assert batches(small.map(lambda row: row), 4) == [4, 4, 2]
    assert batches(small.filter(lambda row: row["id"] % 2 == 0), 4) == [2, 2, 1], "it is joined as it is read"
    assert batches(small.map_batches(lambda batch: batch, concurrency=1), 4) == [4, 4, 2]
    for number in range(6):
        pd.DataFrame({"id": [number]}).to_csv(tmp_path / f"{number}.csv", index=False)
    assert batches(data.read_csv(tmp_path), 4) == [4, 2], "nobody has counted these"
    rows = small.map_batches(lambda batch: batch, batch_size=4).take_all()
    assert [row["id"] for row in rows] == list(range(10))
    shards = small.map_batches(lambda batch: batch, batch_size=4).streaming_split(2)
    dealt = [row["id"] for shard in shards for row in shard.iter_rows()]
    assert sorted(dealt) == list(range(10)), "each rank joins what it is dealt"


def test_how_many_processes_a_function_has_is_checked() -> None:
    class Kind:
        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return row

    for concurrency in ("dummy", (1, 3, 5, 7), (8, 4), 0, (0, 2)):
        with case(concurrency), pytest.raises(ValueError, match="concurrency"):
            data.range(3).map(Kind, concurrency=concurrency)
    with pytest.raises(ValueError, match="no class"):
        data.range(3).map(lambda row: row, concurrency=(2, 4))
    with pytest.raises(ValueError, match="no class"):
        data.range(3).map_batches(lambda batch: batch, fn_constructor_args=(1,))
    assert data.range(3).map(Kind, concurrency=(1, 2)).count() == 3
    for given in ({"min_size": 0}, {"size": 2, "min_size": 1}, {"min_size": 4, "max_size": 2}, {"size": 0}):
        with case(given), pytest.raises(ValueError):
            data.ActorPoolStrategy(**given)
    with pytest.raises(ValueError, match="max_tasks_in_flight"):
        data.ActorPoolStrategy(max_tasks_in_flight_per_actor=0)


def partitioned(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).mkdir(parents=True)
        pd.DataFrame({"x": [1, 2]}).to_csv(directory / name / "f.csv", index=False)
    return directory


def test_columns_in_paths_are_texts_unless_they_have_a_type(tmp_path: Path, as_ray: None) -> None:
    partitioned(tmp_path, "year=2023/m=a", "year=2024/m=b")
    assert data.read_csv(tmp_path).take(1) == [{"x": 1, "year": "2023", "m": "a"}]
    kinds: dict[type, Any] = {int: 2023, float: 2023.0, str: "2023"}
    for kind, value in kinds.items():
        partitioning = data.Partitioning("hive", field_types={"year": kind})
        with case(kind):
            (row,) = data.read_csv(tmp_path, partitioning=partitioning).take(1)
            assert row["year"] == value and type(row["year"]) is kind
    with pytest.raises(ConfigError, match="`m` is `a` in a path"):
        data.read_csv(tmp_path, partitioning=data.Partitioning("hive", field_types={"m": int}))
    truth = partitioned(tmp_path / "truth", "ok=true", "ok=false")
    typed = data.read_csv(truth, partitioning=data.Partitioning("hive", field_types={"ok": bool}))
    assert [row["ok"] for row in typed.take_all()] == [False, False, True, True]


def test_natively_columns_in_paths_are_integers_where_all_of_them_are(tmp_path: Path) -> None:
    partitioned(tmp_path, "year=2023", "year=2024")
    assert data.read_csv(tmp_path).take(1) == [{"x": 1, "year": 2023}]


def test_directories_are_columns_whose_names_are_given(tmp_path: Path) -> None:
    partitioned(tmp_path, "2023/de", "2024/fr")
    by = data.Partitioning("dir", field_names=["year", "land"], base_dir=str(tmp_path), field_types={"year": int})
    assert data.read_csv(tmp_path, partitioning=by).take(1) == [{"x": 1, "year": 2023, "land": "de"}]
    few = data.Partitioning("dir", field_names=["year"], base_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"2 directories below .* for 1 columns: year"):
        data.read_csv(tmp_path, partitioning=few)
    with pytest.raises(ConfigError, match="field_names"):
        data.Partitioning("dir")
    with pytest.raises(ConfigError, match="unknown partitioning style"):
        data.Partitioning("foo")


def test_files_are_chosen_by_what_stands_in_their_paths(tmp_path: Path) -> None:
    partitioned(tmp_path, "year=2023", "year=2024")
    (tmp_path / "year=2024" / "f.csv").write_bytes(b"\xff no csv at all")
    chosen = data.PathPartitionFilter.of(lambda values: values["year"] == "2023")
    dataset = data.read_csv(tmp_path, partition_filter=chosen)
    assert dataset.input_files() == [str(tmp_path / "year=2023" / "f.csv")] and dataset.count() == 2
    with pytest.raises(ConfigError, match="leaves none"):
        data.read_csv(tmp_path, partition_filter=data.PathPartitionFilter.of(lambda values: False))


def test_a_path_is_parsed_as_it_is_read() -> None:
    hive = data.PathPartitionParser.of("hive", field_types={"b": int})
    assert hive("bucket/a=x%20y/b=2/f.csv") == {"a": "x y", "b": 2}
    assert hive.scheme.style == data.PartitionStyle.HIVE == "hive"
    named = data.PathPartitionParser.of("dir", base_dir="s3://bucket/base", field_names=["a", "b"])
    assert named("bucket/base/1/2/f.csv") == {"a": "1", "b": "2"}
    assert named("bucket/base/f.csv") == {} == named("elsewhere/f.csv")
    with pytest.raises(ConfigError, match="1 directories for 2 columns"):
        named("bucket/base/1/f.csv")


def test_files_are_shuffled_by_a_seed(tmp_path: Path) -> None:
    for number in range(10):
        pd.DataFrame({"x": [number]}).to_csv(tmp_path / f"{number}.csv", index=False)

    def order(shuffle: Any) -> list[int]:
        return [row["x"] for row in data.read_csv(tmp_path, shuffle=shuffle).take_all()]

    by_seed = order(data.FileShuffleConfig(seed=9))
    assert by_seed == order(data.FileShuffleConfig(seed=9)) != order(data.FileShuffleConfig(seed=10))
    assert sorted(by_seed) == order(None) == sorted(order("files"))
    with pytest.raises(ConfigError, match="shuffle='rows'"):
        data.read_csv(tmp_path, shuffle="rows")


def test_an_array_in_a_line_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('["a", "b", 1]\n["c"]\n\n["d", null, 2]\n')
    rows = [{"0": "a", "1": "b", "2": 1}, {"0": "c", "1": None, "2": None}, {"0": "d", "1": None, "2": 2}]
    assert data.read_json(file, lines=True).take_all() == rows
    with pytest.raises(Exception, match="with `lines=True` arrays"):
        data.read_json(file).take_all()
    records = tmp_path / "b.json"
    records.write_text(json.dumps([{"a": 1}, {"a": 2}]))
    assert data.read_json(records, lines=True).take_all() == [{"a": 1}, {"a": 2}]


def test_options_of_pyarrow_for_json(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a":1,"b":"x"}\n{"a":2,"b":"y"}\n')
    assert data.read_json(file, read_options=pj.ReadOptions(block_size=1)).count() == 2
    only = pj.ParseOptions(explicit_schema=pa.schema([("b", pa.string())]), unexpected_field_behavior="ignore")
    assert data.read_json(file, parse_options=only).take_all() == [{"b": "x"}, {"b": "y"}]
    typed = pj.ParseOptions(explicit_schema=pa.schema([("a", pa.float32())]))
    assert data.read_json(file, parse_options=typed).schema().types[0] == pa.float32()  # type: ignore[union-attr]


def test_how_a_file_is_compressed_can_be_said(tmp_path: Path) -> None:
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(b'{"a":1}\n'))
    empty = tmp_path / "empty.json"
    empty.write_bytes(gzip.compress(b""))
    how = {"compression": "gzip"}
    assert data.read_json([packed, empty], arrow_open_stream_args=how).take_all() == [{"a": 1}]
    assert data.read_text(packed, arrow_open_stream_args=how).take_all() == [{"text": '{"a":1}'}]
    named = tmp_path / "plain.json.gz"
    named.write_text('{"a":1}\n')
    assert data.read_json(named, arrow_open_stream_args={"compression": None}).count() == 1
    with pytest.raises(ConfigError, match="cannot unpack `compression='brotli'`"):
        data.read_json(packed, arrow_open_stream_args={"compression": "brotli"})


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(3):
            for suffix in ("txt", "test.txt", "cls", "test.cls2"):
                member = tarfile.TarInfo(f"{number}.{suffix}")
                member.size = 1
                tar.addfile(member, io.BytesIO(str(number).encode()))
    return tmp_path


def test_samples_say_which_file_they_are_from(samples: Path) -> None:
    row = data.read_webdataset(samples).take(2)[1]
    url = str(samples / "a.tar")
    assert row == {"__key__": "1", "txt": "1", "test.txt": "1", "cls": 1, "test.cls2": 1, "__url__": url}


def test_suffixes_of_samples_are_names_patterns_or_a_function(samples: Path) -> None:
    def columns(suffixes: Any) -> set[str]:
        return set(data.read_webdataset(samples, suffixes=suffixes).take(1)[0]) - {"__key__", "__url__"}

    assert columns(["txt", "cls"]) == {"txt", "cls"}
    assert columns(["*.txt", "*.cls"]) == {"txt", "test.txt", "cls"}
    assert columns(lambda name: name.endswith("txt")) == {"txt", "test.txt"}


def test_samples_are_decoded_by_functions(samples: Path) -> None:
    def shout(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "cls": f"{sample['cls']}!"}

    assert data.read_webdataset(samples, decoder=[True, shout]).take(1)[0]["cls"] == "0!"
    assert data.read_webdataset(samples, decoder=shout).take(1)[0]["cls"] == "b'0'!"
    assert data.read_webdataset(samples, decoder=None).take(1)[0]["txt"] == b"0"


def test_json_in_samples_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number, text in enumerate((b'{"a": [1, 2], "b": {"c": 1}}', b'{"a": [3], "b": {"c": 2}}')):
            member = tarfile.TarInfo(f"{number}.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    assert data.read_webdataset(tmp_path).take(1)[0]["json"] == '{"a": [1, 2], "b": {"c": 1}}'
    row = data.read_webdataset(tmp_path, expand_json=True).take(1)[0]
    assert (row["a"], row["b"], row["json"]) == ([1, 2], {"c": 1}, {"a": [1, 2], "b": {"c": 1}})
    monkeypatch.setenv("CARRIL_AS_RAY", "1")
    assert data.read_webdataset(tmp_path).take(2)[1]["json"] == {"a": [3], "b": {"c": 2}}
    assert data.read_webdataset(tmp_path, decoder=None).take(1)[0]["json"] == b'{"a": [1, 2], "b": {"c": 1}}'


def test_settings_of_the_user_s_own() -> None:
    context = data.DataContext.get_current()
    context.set_config("mine", 1)
    assert (context.get_config("mine"), context.get_config("other"), context.get_config("other", 3)) == (1, None, 3)
    context.remove_config("mine")
    assert context.get_config("mine") is None
    assert data.range(3).iterator().get_context() is context


def test_a_setting_without_effect_can_be_read_and_put_back(as_ray: None) -> None:
    context = data.DataContext.get_current()
    before = copy.deepcopy(context)
    assert context.enable_pandas_block is True and context.min_parallelism == 200
    context.enable_pandas_block = False
    try:
        assert data.DataContext.get_current().enable_pandas_block is False
    finally:
        data.DataContext._set_current(before)
    assert data.DataContext.get_current().enable_pandas_block is True
    with pytest.raises(AttributeError, match="no_such_setting"):
        _ = context.no_such_setting


def test_a_streaming_split_gives_each_row_once() -> None:
    for name, given in {"random": {"seed": 3}, "hash": {"split_type": "hash", "hash_column": "id"}}.items():
        train, test = data.range(1000).streaming_train_test_split(0.25, **given)  # type: ignore[arg-type]
        with case(name):
            ids = [[row["id"] for row in part.take_all()] for part in (train, test)]
            assert sorted(ids[0] + ids[1]) == list(range(1000)) and 200 < len(ids[1]) < 300
            again = data.range(1000).streaming_train_test_split(0.25, **given)[1]  # type: ignore[arg-type]
            assert [row["id"] for row in again.take_all()] == ids[1]
    wrong: list[dict[str, Any]] = [
        {"test_size": 1.5},
        {"test_size": 0.5, "split_type": "hash"},
        {"test_size": 0.5, "split_type": "hash", "hash_column": "id", "seed": 2},
        {"test_size": 0.5, "split_type": "foo"},
        {"test_size": 0.5, "hash_column": "id"},
    ]
    for case_given in wrong:
        with case(case_given), pytest.raises(ValueError):
            data.range(100).streaming_train_test_split(**case_given)


def test_columns_beside_each_other() -> None:
    one, other = data.range(3), data.range(3).map(lambda row: {"id": row["id"] * 10, "b": 1})
    assert one.zip(other, other).take(2)[1] == {"id": 1, "id_1": 10, "b": 1, "id_2": 10, "b_1": 1}
    with pytest.raises(ValueError, match="3 and 4"):
        one.zip(data.range(4)).take_all()


def test_a_sample_and_the_values_of_a_column() -> None:
    ids = [row["id"] for row in data.range(1000).random_sample(0.1, seed=1).take_all()]
    assert len(ids) == 100 and ids == sorted(set(ids))
    assert ids == [row["id"] for row in data.range(1000).random_sample(0.1, seed=1).take_all()]
    assert data.range(10).random_sample(0).count() == 0 and data.range(10).random_sample(1.0).count() == 10
    with pytest.raises(ValueError, match="no part of a whole"):
        data.range(10).random_sample(-1)
    ds = data.from_items([{"a": value} for value in (3, None, 1, 3)])
    assert ds.unique("a") == [3, None, 1] and ds.unique("a", ignore_nulls=True) == [3, 1]


def test_what_functions_make_is_not_looked_at_unless_it_is_asked_for() -> None:
    made = data.range(3).map(lambda row: row)
    assert made.columns(fetch_if_missing=False) is None is made.schema(fetch_if_missing=False)
    assert made.columns() == ["id"] and data.range(3).columns(fetch_if_missing=False) == ["id"]


def test_ray_s_names_are_there() -> None:
    source = """
from ray.data import FileShuffleConfig, from_blocks
from ray.data.datasource import Partitioning, PathPartitionFilter
from ray.data.datasource.partitioning import PartitionStyle, PathPartitionParser
from ray.data.exceptions import UserCodeException
from ray.exceptions import RayTaskError
print(PartitionStyle.DIRECTORY.value, issubclass(RayTaskError, UserCodeException))
"""
    path = Path(carril.as_ray.__file__).parent / "path"
    environment = {"PYTHONPATH": str(path), "CARRIL_AS_RAY": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("dir True\n", 0), done.stderr


def test_what_is_not_there_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing is at"):
        data.read_csv(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="no files in the directory"):
        data.read_csv(tmp_path)


def test_values_of_several_kinds_are_kept_as_they_are(as_ray: None) -> None:
    assert data.from_items([1, "a"]).take_all() == [{"item": 1}, {"item": "a"}]
    nested = [{"a": {"b": [1, {"c": 2}]}, "n": 1}]
    assert data.from_items(nested).take_all() == nested


def test_how_a_data_set_is_made_can_be_sent(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1, 2]}).to_csv(tmp_path / "a.csv", index=False)
    made = data.read_csv(tmp_path).map(lambda row: {"x": row["x"] + 1})
    assert made.has_serializable_lineage()
    assert data.Dataset.deserialize_lineage(made.serialize_lineage()).take_all() == [{"x": 2}, {"x": 3}]
    with pytest.raises(ValueError, match="in memory"):
        data.from_items([1]).serialize_lineage()
    assert data.Dataset.copy(made).count() == 2 and made.context is data.DataContext.get_current()


def test_older_names_and_empty_data_sets() -> None:
    assert data.range(10, parallelism=5).num_blocks() == 5 == data.from_items([1] * 10, parallelism=5).num_blocks()
    assert data.from_items([]).schema() is None
    for wrong in (lambda: data.range(5).split_at_indices([]), lambda: data.range(5).filter(lambda row: True, expr="x")):
        with pytest.raises(ValueError):
            wrong()


class Together:
    """Ends only if several rows are in its hands at once."""

    def __init__(self) -> None:
        self.waiting = 0
        self.come = asyncio.Event()

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self.waiting += 1
        if self.waiting == 3:
            self.come.set()
        await asyncio.wait_for(self.come.wait(), 60)
        return {"id": row["id"] + 1}


class Batches:
    async def __call__(self, batch: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for number in range(2):
            await asyncio.sleep(0)
            yield {"id": batch["id"] + number}


async def awaited(batch: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"id": batch["id"] * 2}


async def several(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row] * row["id"]


async def is_odd(row: dict[str, Any]) -> bool:
    return row["id"] % 2 == 1


async def fails(row: dict[str, Any]) -> dict[str, Any]:
    raise KeyError("which")


def test_async_functions_are_awaited() -> None:
    made = {
        "rows together": (data.range(3).map(Together, concurrency=1), [1, 2, 3]),
        "a batch": (data.range(3).map_batches(awaited), [0, 2, 4]),
        "batches one by one": (data.range(2).map_batches(Batches, concurrency=1), [0, 1, 1, 2]),
        "a list of rows": (data.range(3).flat_map(several), [1, 2, 2]),
        "a question": (data.range(3).filter(is_odd), [1]),
        "a coroutine of a plain function": (data.range(2).map_batches(lambda batch: awaited(batch)), [0, 2]),
    }
    for name, (dataset, ids) in made.items():
        with case(name):
            assert [row["id"] for row in dataset.take_all()] == ids
    with pytest.raises(KeyError, match="`fails` in `map` failed"):
        data.range(3).map(fails).take_all()  # type: ignore[arg-type]


class Sink(data.Datasink):
    def __init__(self, least: int | None = None, fails: bool = False) -> None:
        self.told: list[Any] = []
        self.least, self.fails = least, fails

    @property
    def min_rows_per_write(self) -> int | None:
        return self.least

    def on_write_start(self, schema: Any = None) -> None:
        self.told.append("start")

    def write(self, blocks: Any, ctx: data.TaskContext) -> int:
        if self.fails:
            raise OSError("the disk is full")
        assert all(isinstance(block, pa.Table) for block in blocks)
        return sum(len(block) for block in blocks)

    def on_write_complete(self, write_result: data.WriteResult) -> None:
        self.told.append((write_result.num_rows, write_result.write_returns))

    def on_write_failed(self, error: Exception) -> None:
        self.told.append(str(error))


def test_rows_go_into_a_sink_of_one_s_own() -> None:
    rows = data.range(10, override_num_blocks=5)
    for least, parts in ((None, [2] * 5), (3, [4, 4, 2])):
        sink = Sink(least)
        rows.write_datasink(sink)
        assert sink.told == ["start", (10, parts)]
    sink = Sink(fails=True)
    with pytest.raises(OSError, match="the disk is full"):
        rows.write_datasink(sink)
    assert sink.told == ["start", "the disk is full"] and sink.get_name() == "Sink"
    with pytest.raises(TypeError, match="wants a `Datasink`, not a dict"):
        rows.write_datasink({})  # type: ignore[arg-type]
