"""What is wrong with data is one clear error of ours: which file, which place, which columns."""

import pickle
import signal
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
import torch
from data_samples import MEMBERS, ROWS, example, record, write_tar
from data_tables import write_ipc

from carril import data
from carril.exceptions import (
    CarrilError,
    ConfigError,
    ConfigTypeError,
    NotAvailableError,
    NotFoundError,
    StorageError,
)

# What a person should not have to read.
NOISE = ("Err(", "Some(", "{ ", "panicked", "unwrap", "Traceback", "External(", "src/")

READERS: list[Callable[..., data.Dataset]] = [
    data.read_parquet, data.read_csv, data.read_json, data.read_text, data.read_images, data.read_binary_files,
    data.read_numpy, data.read_tfrecords, data.read_webdataset, data.read_ipc,
]  # fmt: skip
every_reader = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)


def told(kind: type[CarrilError], do: Callable[[], object]) -> str:
    """The message of the error that is raised, which reads as ours do."""
    with pytest.raises(kind) as raised:
        do()
    message = raised.value.message
    assert message[0] in "`'0123456789" or message[0].islower(), message
    assert "\n" not in message and not message.endswith("."), message
    assert not [noise for noise in NOISE if noise in message], message
    return str(raised.value)


def table_file(path: Path, groups: int = 4) -> Path:
    table = pa.table({"x": range(100 * groups), "s": [f"row {n}" for n in range(100 * groups)]})
    pq.write_table(table, path, row_group_size=100, compression="snappy")
    return path


def damage(path: Path, group: int) -> None:
    """The first column of a row group becomes nonsense."""
    chunk = pq.read_metadata(path).row_group(group).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[begin : begin + chunk.total_compressed_size] = b"\xa5" * chunk.total_compressed_size
    path.write_bytes(content)


@every_reader
def test_paths_with_nothing_there(tmp_path: Path, read: Callable[..., data.Dataset]) -> None:
    gone, empty = tmp_path / "gone", tmp_path / "empty"
    empty.mkdir()
    assert f"nothing is at `{gone}`" in told(NotFoundError, lambda: read(gone))
    assert f"nothing is at `{gone}/*.x`" in told(NotFoundError, lambda: read(f"{gone}/*.x"))
    assert f"there are no files in the directory `{empty}`" in told(NotFoundError, lambda: read(empty))
    assert "was given no path" in told(ConfigError, lambda: read([]))


@every_reader
def test_arguments_of_the_wrong_type(tmp_path: Path, read: Callable[..., data.Dataset]) -> None:
    name = read.__name__
    for paths in (None, 5, b"bytes", {"a": 1}):
        assert f"`{name}` wants a path or a list of paths" in told(ConfigTypeError, lambda paths=paths: read(paths))
    assert f"`{name}` wants paths, and one of them is 5" in told(ConfigTypeError, lambda: read(["a", 5]))
    (tmp_path / "a").write_text("a")
    unknown = told(ConfigTypeError, lambda: read(tmp_path / "a", colums=["a"]))
    assert f"`{name}` has no option `colums`" in unknown and "`include_paths`" in unknown
    for other in ("dir", ["year"], False, pds.partitioning(pa.schema([("year", pa.int64())]))):
        text = told(ConfigError, lambda other=other: read(tmp_path / "a", partitioning=other))
        assert f"`{name}` was given `partitioning=" in text and '`"hive"`' in text
    for wrong in (-1, "many", 1.5, True):
        text = told(ConfigTypeError, lambda wrong=wrong: read(tmp_path / "a", max_errors=wrong))
        assert f"`{name}` wants `max_errors` as a number that is not negative" in text


def test_options_of_the_wrong_type(tmp_path: Path) -> None:
    parquet, csv = table_file(tmp_path / "a.parquet"), tmp_path / "a.csv"
    csv.write_text("a,b\n1,2\n")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: data.read_parquet(parquet, columns=5), "wants `columns` as a list of names, not 5"),
        (lambda: data.read_parquet(parquet, columns=[1]), "wants `columns` as a list of names, not [1]"),
        (lambda: data.read_csv(csv, delimiter=";;"), "wants `delimiter` as one character, not ';;'"),
        (lambda: data.read_csv(csv, delimiter=5), "wants `delimiter` as one character, not 5"),
        (lambda: data.read_csv(csv, skip_rows=-1), "wants `skip_rows` as a number that is not negative, not -1"),
        (lambda: data.read_csv(csv, column_types=["int"]), "wants `column_types` as a dictionary"),
    ]
    for do, text in wrong:
        assert text in told(ConfigTypeError, do)
    assert "`x` twice" in told(ConfigError, lambda: data.read_parquet(parquet, columns=["x", "x"]))
    kinds = told(ConfigError, lambda: data.read_csv(csv, column_types={"a": "number"}))
    assert "nothing is known of the type `number`" in kinds and "hint: types are named as in Arrow" in kinds
    assert "that is no line end" in told(ConfigError, lambda: data.read_csv(csv, delimiter="\n"))


def test_arguments_that_mean_something_else(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(MEMBERS[0][1])
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    ds = data.range(3)
    wrong: list[tuple[type[CarrilError], Callable[[], object], str]] = [
        (NotAvailableError, lambda: ds.filter(expr="id > 1"), "expressions are not built yet\nhint: give a function of a"),
        (NotAvailableError, lambda: ds.filter("id > 1"), "`filter('id > 1')`: expressions are not built yet"),  # type: ignore[arg-type]
        (ConfigError, lambda: ds.iter_batches(local_shuffle_buffer_size=-2), "`local_shuffle_buffer_size=-2` is not a number"),
        (ConfigError, lambda: ds.iter_torch_batches(local_shuffle_buffer_size=1.5), "`local_shuffle_buffer_size=1.5` is no"),  # type: ignore[arg-type]
        (ConfigTypeError, lambda: data.read_images(tmp_path, size=32), "wants `size` as a height and a width, not 32"),  # type: ignore[arg-type]
        (ConfigError, lambda: data.read_images(tmp_path, size=(0, 3)), "`size=(0, 3)` is not a number of pixels"),
        (ConfigError, lambda: data.read_images(tmp_path, mode="XYZ"), "has no `mode='XYZ'`\nhint: use one of `L`, `LA`, `RGB`"),
        (ConfigError, lambda: data.from_pandas(frame), "there would be two columns `a`"),
        (ConfigTypeError, lambda: data.from_pandas({"a": [1]}), "`from_pandas` wants a data frame or a list of them, not dict"),  # type: ignore[arg-type]
        (ConfigTypeError, lambda: data.from_numpy([1, 2]), "wants an array or a list of arrays, and was given 1\nhint: `from_items`"),  # type: ignore[list-item]
        (ConfigError, lambda: list(ds.iter_torch_batches(dtypes={"typo": torch.float32})), "`typo`, and there is no such column; there are `id`"),
        (NotAvailableError, lambda: ds.write_numpy("x"), "`Dataset.write_numpy` is not built yet\nhint: `write_parquet`"),
        (NotAvailableError, lambda: ds.sort("id"), "hint: `to_pandas()`"),
        (NotAvailableError, lambda: ds.groupby("id"), "hint: `to_pandas()`"),
    ]  # fmt: skip
    for kind, do, text in wrong:
        assert text in told(kind, do)
    assert len(list(ds.iter_batches(local_shuffle_buffer_size=0))) == 1
    assert data.from_numpy({"a": np.arange(2), "b": np.ones((2, 3))}).take(1)[0]["b"].shape == (3,)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = table_file(tmp_path / "a.parquet")
    there = "there is no column `z`; there are `x`, `s`"
    dataset = data.read_parquet(path)
    wrong: list[Callable[[], object]] = [
        lambda: data.read_parquet(path, columns=["x", "z"]),
        lambda: data.read_parquet(path, filter=[("z", "=", 1)]),
        lambda: dataset.select_columns(["z"]).take(1),
        lambda: dataset.drop_columns(["z"]).take(1),
        lambda: dataset.rename_columns({"z": "y"}).take(1),
    ]
    for do in wrong:
        assert there in told(ConfigError, do)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = table_file(tmp_path / "a.parquet")
    read, made = data.read_parquet(path), data.read_parquet(path).map(lambda row: row)
    wrong: list[Callable[[], object]] = [
        lambda: read.rename_columns({"x": "s"}),
        lambda: read.rename_columns({"x": "s", "s": "s"}),
        lambda: read.rename_columns(["s", "s"]),
        lambda: made.rename_columns({"x": "s"}).take(1),
        lambda: made.rename_columns({"x": "s"}).map(lambda row: row).take(1),
        lambda: read.repartition(2).rename_columns({"x": "s"}).take(1),
    ]
    for do in wrong:
        assert "there would be two columns `s`" in told(CarrilError, do)
    assert read.rename_columns({"x": "s", "s": "x"}).take(1) == [{"s": 0, "x": "row 0"}]


def test_files_of_another_format(tmp_path: Path) -> None:
    """Each reader is given what it cannot read, and says which file that is."""
    junk = tmp_path / "junk"
    for read in READERS:
        if read in (data.read_text, data.read_binary_files, data.read_csv):
            continue
        for content in (b"hello, this is no such file" * 10, bytes(1000), b"\xff" * 1000, b"PAR1" * 30):
            junk.write_bytes(content)
            if read is data.read_webdataset and content == bytes(1000):
                continue  # An archive that ends at once.
            assert f"`{junk}`" in told(StorageError, lambda read=read: read(junk).take_all()), (read, content[:10])


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = table_file(tmp_path / "a.parquet")
    damage(path, 2)
    text = told(StorageError, lambda: data.read_parquet(path).take_all())
    assert f"cannot read `{path}` at row group 2:" in text
    assert len(data.read_parquet(path, columns=["s"]).take_all()) == 400, "the other column is whole"


def test_any_byte_that_is_wrong_is_told_or_does_no_harm(tmp_path: Path) -> None:
    """Whatever is changed or cut in a file: an error of ours or rows, and never a crash."""
    path = table_file(tmp_path / "a.parquet", groups=2)
    whole, dice = path.read_bytes(), np.random.default_rng(3)
    for turn in range(150):
        content = bytearray(whole)
        if turn % 3:
            content[int(dice.integers(len(content)))] ^= 1 << int(dice.integers(8))
        else:
            del content[int(dice.integers(len(content))) :]
        path.write_bytes(content)
        try:
            assert len(data.read_parquet(path).take_all()) >= 0
        except StorageError as error:
            assert f"cannot read `{path}` at " in error.message, error.message
        except ConfigError as error:
            assert "column" in error.message, error.message


def test_damaged_parts_are_passed_over_within_the_bound(tmp_path: Path) -> None:
    for name in "abc":
        table_file(tmp_path / f"{name}.parquet")
    damage(tmp_path / "a.parquet", 1)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-100])
    assert "b.parquet` at its metadata" in told(StorageError, lambda: data.read_parquet(tmp_path))
    assert "a.parquet` at row group 1" in told(
        StorageError, lambda: data.read_parquet(tmp_path, max_errors=1).take_all()
    )
    dataset = data.read_parquet(tmp_path, max_errors=2)
    expected = [n for n in range(400) if not 100 <= n < 200] + list(range(400))
    assert [row["x"] for row in dataset.take_all()] == expected
    assert dataset.count() == 700, "what is damaged is not counted"


@every_reader
def test_a_damaged_file_among_others_is_passed_over(tmp_path: Path, read: Callable[..., data.Dataset]) -> None:
    good: dict[Any, tuple[str, Callable[[Path], object]]] = {
        data.read_parquet: ("parquet", table_file),
        data.read_csv: ("csv", lambda path: path.write_text("a\n1\n")),
        data.read_json: ("json", lambda path: path.write_text('{"a":1}\n')),
        data.read_text: ("txt", lambda path: path.write_text("a\n")),
        data.read_images: ("png", lambda path: path.write_bytes(MEMBERS[0][1])),
        data.read_numpy: ("npy", lambda path: np.save(path, np.ones(3))),
        data.read_tfrecords: ("tfrecord", lambda path: path.write_bytes(record(example(ROWS[0])))),
        data.read_webdataset: ("tar", lambda path: write_tar(path, MEMBERS)),
        data.read_ipc: ("arrow", lambda path: write_ipc(pa.table({"x": [1]}), path)),
    }
    if read not in good:
        return  # Any bytes are a row.
    ending, write = good[read]
    for name in ("1", "3"):
        write(tmp_path / f"{name}.{ending}")
    rows = read(tmp_path).count()
    bad = tmp_path / f"2.{ending}"
    bad.write_bytes(b"\xff\xfe" * 600)
    assert f"`{bad}`" in told(StorageError, lambda: read(tmp_path).take_all())
    assert read(tmp_path, max_errors=1).count() == rows
    assert read(bad, max_errors=1).take_all() == []


def test_schemas_that_disagree(tmp_path: Path) -> None:
    tables = {
        "a": pa.table({"x": [1], "y": ["s"]}), "b": pa.table({"x": [1], "y": [2]}), "c": pa.table({"x": [1]}),
        "d": pa.table({"x": [1], "y": ["s"], "z": [1]}), "e": pa.table({"x": [{"k": 1}], "y": ["s"]}),
    }  # fmt: skip
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        write_ipc(table, tmp_path / f"{name}.arrow")
    expected = {
        "b": "`y` is Utf8 in the one and Int64 in the other", "c": "`y` is only in the first",
        "d": "`z` is only in the second", "e": "`x` is Int64 in the one and Struct",
    }  # fmt: skip
    for read, ending in ((data.read_parquet, "parquet"), (data.read_ipc, "arrow")):
        for name, difference in expected.items():
            pair = [tmp_path / f"{one}.{ending}" for one in ("a", name)]
            text = told_of_schemas(lambda read=read, pair=pair: read(pair))
            assert f"`{pair[0]}` and `{pair[1]}` have different columns: {difference}" in text


def told_of_schemas(do: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as raised:
        do()
    return str(raised.value)


def empty_ones(directory: Path) -> list[data.Dataset]:
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), directory / "a.parquet")
    (directory / "a.csv").write_text("x\n")
    (directory / "a.txt").write_text("")
    return [
        data.read_parquet(directory / "a.parquet"),
        data.read_csv(directory / "a.csv"),
        data.read_text(directory / "a.txt"),
        data.from_items([]),
        data.range(0),
        data.range(10).limit(0),
        data.range(10).filter(lambda row: False),
    ]


def test_a_data_set_without_rows(tmp_path: Path) -> None:
    for dataset in empty_ones(tmp_path):
        assert dataset.count() == 0, dataset
        assert (list(dataset.iter_batches()), list(dataset.iter_rows()), dataset.take_all(), dataset.take(3)) == (
            [],
            [],
            [],
            [],
        )
        assert list(dataset.iter_torch_batches()) == []
        assert dataset.materialize().count() == 0
        assert len(dataset.to_pandas()) == 0
        with pytest.raises(ValueError, match="the data set is empty: there is no batch to take"):
            dataset.take_batch()


def test_a_function_that_fails_is_told_with_its_own_line_and_its_row() -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 7:
            raise KeyError("no such word")  # this very line
        return row

    with pytest.raises(CarrilError) as raised:
        data.range(20).map(fails).take_all()
    text = str(raised.value)
    assert "`fails` in `map` failed in row 7" in text and "KeyError: 'no such word'" in text
    assert __file__ in text and 'raise KeyError("no such word")' in text

    def unequal(batch: dict[str, Any]) -> dict[str, Any]:
        return {"a": batch["id"], "b": batch["id"][:3]}

    with pytest.raises(CarrilError, match="the columns are of unequal length: `a` has 10, `b` has 3") as raised:
        data.range(10).map_batches(unequal).take_all()
    assert "`unequal` in `map_batches` failed" in str(raised.value)
    assert "the calls that led there" not in str(raised.value), "no call of the user's led there"
    with pytest.raises(CarrilError, match="a row is a dictionary, and int was returned"):
        data.range(3).map(lambda row: 5).take_all()  # type: ignore[arg-type,return-value]
    with pytest.raises(CarrilError, match="`flat_map` wants a list of rows"):
        data.range(3).flat_map(lambda row: row).take_all()
    with pytest.raises(ConfigTypeError, match="`map` wants a function or a class, not int"):
        data.range(3).map(5)  # type: ignore[arg-type]


WITHOUT = """
    import sys
    for name in ("pyarrow", "pandas", "torch"):
        sys.modules[name] = None  # an import of it fails

    from carril import data

    directory = sys.argv[1]
    for read, ending in [
        (data.read_parquet, "parquet"), (data.read_csv, "csv"), (data.read_json, "json"), (data.read_text, "txt"),
        (data.read_images, "png"), (data.read_binary_files, "bin"), (data.read_numpy, "npy"),
        (data.read_tfrecords, "tfrecord"), (data.read_webdataset, "tar"), (data.read_ipc, "arrow"),
    ]:
        dataset = read(f"{directory}/a.{ending}")
        rows = sum(len(next(iter(batch.values()))) for batch in dataset.iter_batches(batch_size=2))
        print(ending, rows, dataset.count(), len(dataset.take_all()), len(dataset.columns()), bool(dataset.schema()))
    import numpy
    for dataset in (
        data.from_items([{"a": 1}, {"a": 2}]), data.from_numpy(numpy.ones((2, 3))), data.range(2), data.range_tensor(2),
    ):
        print(dataset.count(), dataset.map_batches(lambda batch: batch).random_shuffle(seed=1).count())
"""


def test_files_are_read_where_pyarrow_and_pandas_are_not_installed(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "s": ["a", None], "l": [[1], []]})
    pq.write_table(table, tmp_path / "a.parquet")
    write_ipc(table, tmp_path / "a.arrow")
    (tmp_path / "a.csv").write_text("x,s\n1,a\n2,b\n")
    (tmp_path / "a.json").write_text('{"x":1}\n{"x":2}\n')
    (tmp_path / "a.txt").write_text("a\nb\n")
    (tmp_path / "a.png").write_bytes(MEMBERS[0][1])
    (tmp_path / "a.bin").write_bytes(b"\0")
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    (tmp_path / "a.tfrecord").write_bytes(b"".join(record(example(row)) for row in ROWS))
    write_tar(tmp_path / "a.tar", MEMBERS)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(WITHOUT))
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "parquet 2 2 2 3 True", "csv 2 2 2 2 True", "json 2 2 2 1 True", "txt 2 2 2 1 True", "png 1 1 1 1 True",
        "bin 1 1 1 1 True", "npy 2 2 2 1 True", "tfrecord 3 3 3 4 True", "tar 2 2 2 7 True", "arrow 2 2 2 3 True",
        "2 2", "2 2", "2 2", "2 2",
    ]  # fmt: skip


class Scaled:
    def __init__(self, factor: int) -> None:
        self.factor = 1 / factor

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


def leaves(row: dict[str, Any]) -> dict[str, Any]:
    sys.exit("enough")


class Broken(data.Datasource):
    def get_read_tasks(self, parallelism: int) -> list[Callable[[], Any]]:
        return [lambda: [{"x": [1 // 0]}]]


class NoSamples:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> int:
        raise OSError("the disk has gone")


def test_what_fails_in_a_function_is_told_by_the_names_of_the_user() -> None:
    ds = data.range(3)
    wrong: list[tuple[Callable[[], object], tuple[str, ...]]] = [
        (lambda: ds.flat_map(lambda row: [1]).take_all(), ("`flat_map` wants a list of rows, which are dictionaries, and 1",)),  # type: ignore[list-item]
        (lambda: ds.map_batches(Scaled).take_all(),
         ("`Scaled` in `map_batches` cannot be made: TypeError:", "'factor'", "hint: its arguments are `fn_constructor_args`")),
        (lambda: ds.map_batches(Scaled, fn_constructor_args=(0,)).take_all(),
         ("`Scaled` in `map_batches` cannot be made at ", "ZeroDivisionError", "self.factor = 1 / factor")),
        (lambda: ds.map(leaves).take_all(), ("`leaves` in `map` failed in row 0 of its block at ", "SystemExit: enough")),
        (lambda: data.read_datasource(Broken()).take_all(), ("`Broken` in `read_datasource` failed at ", "ZeroDivisionError")),
        (lambda: data.from_torch(NoSamples()).take_all(), ("`NoSamples` in `from_torch` failed at ", "the disk has gone")),
    ]  # fmt: skip
    for do, texts in wrong:
        message = told(CarrilError, do)
        assert not [text for text in texts if text not in message], message


SLOW = """
    import sys, time
    from carril import data

    def slow(row):
        time.sleep(0.2)  # the work, in which it is when nobody wants its answer any more
        return row

    rows = data.range(40, override_num_blocks=40).map(slow)
    for row in rows.take(1) if sys.argv[1] == "take" else rows.iter_rows():
        print(row, flush=True)
        if sys.argv[1] == "break":
            break
"""


@pytest.mark.parametrize("ends", ["take", "break", "interrupt"])
def test_processes_of_functions_end_without_a_word_when_nobody_reads_any_more(ends: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SLOW), ends]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "{'id': 0}\n"
    if ends == "interrupt":
        process.send_signal(signal.SIGINT)
    # The processes of the functions have these pipes too: they are read to the end of the last one.
    _, told = process.communicate(timeout=60)
    assert "_serve" not in told and "BrokenPipeError" not in told
    assert told == "" if ends != "interrupt" else "KeyboardInterrupt" in told


def test_a_method_that_is_missing_reads_as_an_attribute_error() -> None:
    ds = data.range(3)
    assert not hasattr(ds, "write_numpy")
    with pytest.raises(NotAvailableError) as raised:
        ds.write_numpy("x")
    text = "".join(traceback.format_exception_only(raised.value))
    assert text.startswith("AttributeError: `Dataset.write_numpy` is not built yet\nhint: "), text
    assert repr(raised.value) == "AttributeError('`Dataset.write_numpy` is not built yet')"
    again = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(again, AttributeError) and type(again) is type(raised.value)
    assert (str(again), again.hints, again.code) == (str(raised.value), raised.value.hints, raised.value.code)
