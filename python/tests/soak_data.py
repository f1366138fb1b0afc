"""What `test_data_resume_soak.py` runs in a process of its own: one `fit()` over data sets that are described in JSON."""

import json
import sys
from typing import Any

import numpy
import pyarrow.fs

from carril import data, train


def open_source(spec: dict[str, Any]) -> data.Dataset:
    match spec["kind"]:
        case "range":
            return data.range(spec["rows"])
        case "parquet":
            return data.read_parquet(spec["directory"])
        case "csv":
            return data.read_csv(spec["directory"])
        case "arrow":
            return data.read_ipc(spec["directory"])
        case "npy":
            return data.read_numpy(spec["directory"]).rename_columns({"data": "id"})
        case "tar":
            return data.read_webdataset(spec["directory"]).select_columns(["cls"]).rename_columns({"cls": "id"})
        case "txt":
            return data.read_text(spec["directory"]).map(lambda row: {"id": int(row["text"])})
        case "bin":
            return data.read_binary_files(spec["directory"]).map(lambda row: {"id": int(row["bytes"])})
        case "png":
            return data.read_images(spec["directory"]).map_batches(from_pixels, batch_size=7)
        case _:
            return data.read_json(spec["directory"])


def from_pixels(batch: dict[str, Any]) -> dict[str, Any]:
    """A picture of one pixel is a number of three bytes."""
    return {"id": numpy.stack(list(batch["image"])).astype(int)[:, 0, 0] @ [1 << 16, 1 << 8, 1]}


def keep(row: dict[str, Any]) -> bool:
    return row["id"] % 3 != 0


def keep_stretches(row: dict[str, Any]) -> bool:
    """Whole files and row groups have no row that is kept."""
    return row["id"] // 100 % 3 == 1


def keep_none(row: dict[str, Any]) -> bool:
    return False


def drop_and_copy(batch: dict[str, Any]) -> dict[str, Any]:
    """Every fifth row is dropped, and every seventh of the others comes once more, with another number."""
    ids = batch["id"][batch["id"] % 5 != 0]
    return {"id": numpy.concatenate([ids, ids[ids % 7 == 0] + 1_000_000])}


def twins(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [] if row["id"] % 11 == 0 else [{"id": row["id"]}, {"id": row["id"] + 2_000_000}]


def open_dataset(spec: dict[str, Any]) -> data.Dataset:
    first, *others = [open_source(source) for source in spec["sources"]]
    dataset = first.union(*others) if others else first
    if spec["limit"] is not None:
        dataset = dataset.limit(spec["limit"])
    match spec["function"]:
        case "map":
            dataset = dataset.map(lambda row: {"id": row["id"]})
        case "filter":
            dataset = dataset.filter(keep)
        case "stretches":
            dataset = dataset.filter(keep_stretches)
        case "none":
            dataset = dataset.filter(keep_none)
        case "flat_map":
            dataset = dataset.flat_map(twins)
        case "map_batches":
            dataset = dataset.map_batches(drop_and_copy, batch_size=50)
    match spec["shuffle"]:
        case "rows":
            return dataset.random_shuffle()
        case "seeded":
            return dataset.random_shuffle(seed=7)
        case "blocks":
            return dataset.randomize_block_order()
        case _:
            return dataset


def function(config: dict[str, Any]) -> None:
    """Reads all epochs of all data sets, and saves what it was handed at places of its own, as often as every other rank."""
    import random
    import tempfile
    from pathlib import Path

    import numpy

    from carril import train

    rank, base, own = train.get_context().get_world_rank(), [], []
    checkpoint = train.get_checkpoint()
    if checkpoint is not None and rank == 0:
        with checkpoint.as_directory() as directory:
            base = [numpy.load(path) for path in sorted(Path(directory).glob("*.npy"))]
    saved, steps = 0, 0
    # Some ranks save in a few steps, others over many.
    # With a file system object `report` waits until the checkpoint of all ranks is stored.
    who = None if config["filesystem"] else rank
    dice = random.Random(f"{config['seed']} {config['life']} {who} {checkpoint}")
    places = sorted(dice.sample(range(config["most"]), config["saves"]))
    names = list(config["sets"])

    def save() -> None:
        with tempfile.TemporaryDirectory(dir=config["scratch"]) as directory:
            rows = [*base, *own]
            numpy.save(f"{directory}/{rank}.npy", numpy.concatenate(rows) if rows else numpy.zeros((0, 3), int))
            train.report({"steps": steps}, checkpoint=train.Checkpoint(directory))

    def batches(shard: Any, how: dict[str, Any]) -> Any:
        size, ahead, drop_last = how["batch"], how["ahead"], how["drop_last"]
        if how["how"] == "rows":
            return ({name: numpy.array([value]) for name, value in row.items()} for row in shard.iter_rows())
        if how["how"] == "torch":
            batches = shard.iter_torch_batches(batch_size=size, prefetch_batches=ahead, drop_last=drop_last)
            return ({name: tensor.numpy() for name, tensor in batch.items()} for batch in batches)
        mixed = how["mixed"] if how["how"] == "mixed" else None
        return shard.iter_batches(
            batch_size=size, prefetch_batches=ahead, local_shuffle_buffer_size=mixed, drop_last=drop_last
        )

    for epoch in range(config["epochs"]):
        for name in names:
            shard = train.get_dataset_shard(name)
            if shard._native.epoch > epoch:
                continue
            for batch in batches(shard, config["sets"][name]):
                ids = batch["id"] if "is_padding" not in batch else batch["id"][~batch["is_padding"]]
                row = numpy.array([names.index(name), epoch, 0])
                own.append(numpy.tile(row, (len(ids), 1)) + numpy.outer(ids, [0, 0, 1]))
                if saved < len(places) and places[saved] == steps:
                    save()
                    saved += 1
                steps += 1
                with open(config["steps"], "ab", buffering=0) as file:
                    file.write(b".")
    for _ in range(config["saves"] - saved + 1):
        save()


def live(config: dict[str, Any]) -> None:
    """One `fit()`, in a process of its own."""
    filesystem = pyarrow.fs.SubTreeFileSystem(config["storage"], pyarrow.fs.LocalFileSystem())
    storage = {"storage_path": "runs", "storage_filesystem": filesystem}
    limits = data.ExecutionResources(object_store_memory=config["memory"])
    failures = train.FailureConfig(max_failures=0, max_infrastructure_failures=config["restarts"])
    train.DataParallelTrainer(
        function,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=config["workers"], resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(
            name="soak",
            failure_config=failures,
            resume=True,
            verbose=0,
            **(storage if config["filesystem"] else {"storage_path": config["storage"]}),
        ),
        datasets={name: open_dataset(spec["dataset"]) for name, spec in config["sets"].items()},
        dataset_config=train.DataConfig(
            uneven=config["uneven"], execution_options=data.ExecutionOptions(resource_limits=limits)
        ),
    ).fit()


if __name__ == "__main__":
    live(json.loads(sys.argv[1]))
