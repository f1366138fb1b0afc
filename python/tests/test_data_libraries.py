"""What other libraries hold: data sets of torch and of Hugging Face, and objects of any class."""

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from torch.utils.data import IterableDataset, TensorDataset

from carril import data, train
from carril.exceptions import CarrilError, ConfigError, ConfigTypeError


class Squares(torch.utils.data.Dataset[Any]):
    """Samples as dictionaries; each says which process made it, and leaves a file."""

    def __init__(self, size: int, made: Path) -> None:
        self.size, self.made = size, made

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> dict[str, Any]:
        (self.made / str(number)).touch()
        return {"x": torch.full((2,), float(number)), "square": number**2, "pid": os.getpid()}


def test_samples_of_torch_are_made_when_they_are_wanted_and_in_other_processes(tmp_path: Path) -> None:
    ds = data.from_torch(Squares(5000, tmp_path))
    assert not list(tmp_path.iterdir())
    (row,) = ds.limit(1).take_all()
    assert row["x"].tolist() == [0, 0] and row["x"].dtype == np.float32
    assert row["pid"] != os.getpid()
    assert 1 <= len(list(tmp_path.iterdir())) < 2500, "not all were made for the first one"
    assert [row["square"] for row in ds.iter_rows()] == [number**2 for number in range(5000)]
    assert ds.count() == 5000 == len(list(tmp_path.iterdir()))


def test_tuples_of_torch_are_the_samples_as_they_are() -> None:
    points, labels = torch.arange(600.0).reshape(300, 2), torch.arange(300)
    ds = data.from_torch(TensorDataset(points, labels))
    assert str(ds.schema()) == "{item: object of Python}"
    point, label = ds.take(2)[1]["item"]
    assert torch.equal(point, points[1]) and label == 1
    columns = ds.map(lambda row: {"x": row["item"][0], "y": row["item"][1]}).take_batch(300)
    assert np.array_equal(columns["x"], points) and columns["y"].tolist() == labels.tolist()

    batches = list(ds.random_shuffle(seed=3).iter_torch_batches(batch_size=100, dtypes=torch.float64))
    order = torch.cat([batch["item"][1] for batch in batches]).long()
    assert order.tolist() != labels.tolist() and sorted(order.tolist()) == labels.tolist()
    assert torch.equal(torch.cat([batch["item"][0] for batch in batches]), points.double()[order])
    flags = data.from_torch(TensorDataset(labels % 2, labels % 3))
    assert flags.take(3)[2] == {"item": (0, 2)}, "samples of one kind are tuples too"
    collated = flags.iter_torch_batches(batch_size=9, collate_fn=lambda batch: [second for _, second in batch["item"]])
    assert next(iter(collated)) == [0, 1, 2] * 3


def test_tuples_that_torch_makes_no_tensors_of_are_told() -> None:
    pictures = data.from_items([{"item": (Image.new("L", (2, 2)), 7)}])
    with pytest.raises(ConfigError, match="column `item` cannot be a tensor: its rows are tuples of `Image`, `int`"):
        list(pictures.iter_torch_batches())


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize("kind", ["a data set of torch", "a list"])
def test_what_training_is_given_is_dealt_to_its_workers(kind: str, storage: Path) -> None:
    samples = [(torch.full((2,), float(number)), number) for number in range(10)]
    points, labels = torch.stack([point for point, _ in samples]), torch.arange(10)

    def function() -> None:
        seen: list[int] = []
        for batch in train.get_dataset_shard("train").iter_torch_batches(batch_size=2):
            points, labels = batch["item"]
            assert points.tolist() == [[label, label] for label in labels]
            seen += labels.tolist()
        train.report({"seen": seen})

    trainer = train.DataParallelTrainer(
        function,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(storage)),
        datasets={"train": samples if kind == "a list" else TensorDataset(points, labels)},
    )
    result = trainer.fit()
    first, second = (result.rank_metrics(rank)[0]["seen"] for rank in (0, 1))
    assert len(first) == len(second) == 5
    assert sorted(first + second) == list(range(10))


@pytest.mark.usefixtures("head")
def test_data_frames_and_tables_can_be_given_to_a_trainer(storage: Path) -> None:
    def read() -> None:
        rows = {name: [row["x"] for row in train.get_dataset_shard(name).iter_rows()] for name in ("frame", "table")}
        train.report(rows)

    frame = pandas.DataFrame({"x": [1, 2, 3]}, index=[7, 8, 9])
    trainer = train.DataParallelTrainer(
        read,
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(storage_path=str(storage)),
        datasets={"frame": frame, "table": pyarrow.table({"x": [4, 5]})},
    )
    metrics = trainer.fit().metrics
    assert metrics is not None and (metrics["frame"], metrics["table"]) == ([1, 2, 3], [4, 5])


@pytest.mark.parametrize("given", [data.range(3), pandas.DataFrame({"x": [1]}), [1, 2]])
def test_data_sets_of_a_trainer_have_names(given: Any) -> None:
    with pytest.raises(ConfigTypeError, match="it must be a dictionary of names and data sets"):
        train.DataParallelTrainer(lambda: None, datasets=given)
    for inner in ({"x": [1]}, "path.parquet"):
        with pytest.raises(ConfigTypeError, match=r"`datasets\['train'\]` is (dict|str): it must be a data set"):
            train.DataParallelTrainer(lambda: None, datasets={"train": inner})


class Counted(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_an_iterable_of_torch_can_be_read_again() -> None:
    ds = data.from_torch(Counted())
    assert [row["item"] for row in ds.take_all()] == [row["item"] for row in ds.take_all()] == [0, 1, 2, 3]


def test_pinned_memory_is_asked_for_where_there_is_a_device_for_it() -> None:
    (batch,) = data.range(3).iter_torch_batches(pin_memory=True)
    assert batch["id"].tolist() == [0, 1, 2]
    assert batch["id"].is_pinned() == torch.cuda.is_available()
    with pytest.raises(ConfigError, match="`collate_fn` makes the tensors itself"):
        data.range(3).iter_torch_batches(pin_memory=True, collate_fn=len)


def test_a_function_that_collates_may_write_into_what_it_is_given() -> None:
    def emptied(batch: dict[str, Any]) -> float:
        batch["id"][:] = 0
        return float(batch["id"].sum())

    ds = data.range(3).materialize()
    assert list(ds.iter_torch_batches(collate_fn=emptied)) == [0.0]
    assert [row["id"] for row in ds.take_all()] == [0, 1, 2]


def test_data_sets_of_hugging_face() -> None:
    import datasets

    rows = [{"text": text, "label": label} for label, text in enumerate("abc")]
    theirs = datasets.Dataset.from_list(rows)
    assert data.from_huggingface(theirs).take_all() == rows
    assert data.from_huggingface(theirs.select([2, 0])).take_all() == [rows[2], rows[0]]
    assert data.from_huggingface(theirs.with_format("torch")).take_all() == rows
    streamed = data.from_huggingface(theirs.to_iterable_dataset().map(lambda row: {"label": row["label"] + 1}))
    assert [row["label"] for row in streamed.take_all()] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"take one of them: `from_huggingface\(ds\['train'\]\)`"):
        data.from_huggingface(datasets.DatasetDict(train=theirs))
    with pytest.raises(ConfigTypeError, match="was given list: it must be a data set of the library `datasets`"):
        data.from_huggingface(rows)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def test_objects_of_any_class_go_from_function_to_function() -> None:
    ds = data.range(1000).map(lambda row: {"id": row["id"], "point": Point(row["id"]) if row["id"] % 2 else None})
    points = ds.random_shuffle(seed=1).map(lambda row: {"same": getattr(row["point"], "x", -1) == row["id"]})
    assert sum(row["same"] for row in points.take_all()) == 500
    frame = ds.map_batches(lambda frame: frame[frame.id < 2], batch_format="pandas").to_pandas()
    assert frame.point[0] is None and frame.point[1].x == 1
    images = data.from_items([{"image": Image.new("L", (2, 3), level)} for level in (7, 8)])
    assert images.map(lambda row: {"image": np.asarray(row["image"])}).take_batch(2)["image"].shape == (2, 3, 2)


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("no file can hold the column `p`, which has objects of Python", lambda ds, out: ds.write_parquet(out)),
        ("no file can hold the column `p`", lambda ds, out: ds.write_csv(out)),
        ("no Arrow table can hold the column `p`", lambda ds, _: ds.to_arrow_refs()),
        (
            "no Arrow table can hold the column `p`",
            lambda ds, _: ds.map_batches(lambda table: table, batch_format="pyarrow").take_all(),
        ),
    ],
)
def test_where_objects_cannot_be_is_told(told: str, wrong: Callable[[Any, str], Any], tmp_path: Path) -> None:
    with pytest.raises(CarrilError, match=told):
        wrong(data.from_items([{"p": Point(1)}]), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_an_object_that_cannot_be_pickled_is_told() -> None:
    with pytest.raises(TypeError, match=r"column `g` has a value of type <class 'generator'>.*cannot pickle"):
        data.from_items([{"g": (number for number in range(3))}])


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.sprung,)


def test_nothing_that_comes_from_outside_is_unpickled(tmp_path: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    mark = {"ARROW:extension:name": "carril.object"}
    schema = pyarrow.schema([pyarrow.field("x", pyarrow.binary(), metadata=mark)])
    table = pyarrow.table([[trap]], schema=schema)
    parquet.write_table(table, tmp_path / "a.parquet")
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    with pyarrow.OSFile(str(tmp_path / "a.arrows"), "wb") as sink, pyarrow.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    sources = [
        data.read_parquet(str(tmp_path / "a.parquet")),
        data.read_ipc(str(tmp_path / "a.arrow")),
        data.read_ipc(str(tmp_path / "a.arrows")),
        data.from_arrow(table),
        data.range(1).map_batches(lambda _: table),
    ]
    for source in sources:
        assert source.take_all() == [{"x": trap}]
        assert source.take_batch(1)["x"].tolist() == [trap]
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)
    assert (tmp_path / "sprung").exists(), "it is a trap"


def test_blocks_change_places_and_their_rows_stay_together() -> None:
    ds = data.range(1000, override_num_blocks=10)
    order = [row["id"] for row in ds.randomize_block_order(seed=5).take_all()]
    blocks = [order[at : at + 100] for at in range(0, 1000, 100)]
    assert all(block == list(range(block[0], block[0] + 100)) for block in blocks)
    assert sorted(order) == list(range(1000)) != order
    assert order == [row["id"] for row in ds.randomize_block_order(seed=5).take_all()]
    assert order != [row["id"] for row in ds.randomize_block_order(seed=6).take_all()]
