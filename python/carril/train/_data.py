"""Data sets of a run: given to the trainer, dealt to the workers, and gone on with where a checkpoint left them.

TRAIN-DATA-1: with each report goes how far this rank has read; a checkpoint keeps that of every rank.
TRAIN-DATA-2: a run that goes on begins behind what was read before its checkpoint, also with another number of workers.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError

if TYPE_CHECKING:
    from carril.data import Dataset
    from carril.data._split import Shard
    from carril.train._more_config import DataConfig
    from carril.train._session import SessionLike

_MANIFEST = ".manifest.json"

# Those of this worker that were asked for, by name.
_shards: "dict[str, Shard]" = {}


def checked(datasets: Mapping[str, Any]) -> "dict[str, Dataset]":
    """Data sets by name; lists, data frames, tables and torch's are made into such."""
    if not isinstance(datasets, Mapping):
        raise ConfigTypeError(
            f"`datasets` is {type(datasets).__name__}: it must be a dictionary of names and data sets",
            hints=['`datasets={"train": …}`, and in the training function `get_dataset_shard("train")`'],
        )
    return {str(name): _dataset(str(name), given) for name, given in datasets.items()}


def _dataset(name: str, given: Any) -> "Dataset":
    from carril import data

    if isinstance(given, data.Dataset):
        return given
    if isinstance(given, list):
        return data.from_items(given)
    if hasattr(given, "iloc") and hasattr(given, "columns"):
        return data.from_pandas(given)
    if hasattr(given, "__arrow_c_stream__"):
        return data.from_arrow(given)
    if not isinstance(given, Mapping | str | bytes) and (hasattr(given, "__getitem__") or hasattr(given, "__iter__")):
        return data.from_torch(given)
    raise ConfigTypeError(
        f"`datasets[{name!r}]` is {type(given).__name__}: it must be a data set",
        hints=["`carril.data.read_parquet(…)`, `from_items(…)` and the like make one"],
    )


def details_of(datasets: "Mapping[str, Dataset]", config: "DataConfig | None") -> dict[str, Any]:
    """For the workers."""
    if not datasets:
        return {}
    split = config.datasets_to_split if config is not None else "all"
    unknown = [name for name in split if name not in datasets] if isinstance(split, list) else []
    if unknown:
        raise ConfigError(
            f"`DataConfig.datasets_to_split` names `{unknown[0]}`, which is no data set",
            hints=[f"there are {', '.join(datasets)}"],
        )
    from carril.data.context import DataContext

    made = {}
    for name, dataset in datasets.items():
        seed = dataset._plan.seed
        seed = seed if seed is not None else random.getrandbits(62)
        made[name] = {"dataset": dataset, "split": split == "all" or name in split, "seed": seed}
    context = DataContext.get_current()
    if config is not None and config.execution_options is not None:
        context = replace(context, execution_options=_options(config.execution_options))
    uneven = config.uneven if config is not None else "drop"
    return {"datasets": made, "data_context": context, "uneven": uneven}


def _options(given: Any) -> Any:
    from carril.data.context import ExecutionOptions

    if not isinstance(given, ExecutionOptions):
        raise ConfigTypeError(
            f"`DataConfig.execution_options` is {type(given).__name__}: it must be an `ExecutionOptions`",
            hints=["`carril.data.ExecutionOptions(resource_limits=ExecutionResources(object_store_memory=…))`"],
        )
    return given


def shard(name: str | None, details: Mapping[str, Any], session: "SessionLike") -> "Shard":
    """This worker's part of a data set."""
    datasets = details.get("datasets") or {}
    if name is None and len(datasets) == 1:
        name = next(iter(datasets))
    if name is None or name not in datasets:
        there = ", ".join(f"`{one}`" for one in datasets) or "none: the trainer was given no `datasets`"
        asked = "no data set was named" if name is None else f"no data set is named {name!r}"
        raise KeyError(f"{asked}; there are {there}")
    if name not in _shards:
        from carril.data.context import DataContext

        DataContext._current = details["data_context"]
        _shards[name] = _made(name, details, session)
    return _shards[name]


def _made(name: str, details: Mapping[str, Any], session: "SessionLike") -> "Shard":
    from carril.data._split import Meeting, Shard
    from carril.train._session import is_stored

    given = details["datasets"][name]
    world, rank = (session.world_size, session.rank) if given["split"] else (1, 0)
    meeting = began_from = None
    if is_stored(session):
        began_from = session.began_from
        path = f"{session.node_directory}/{session.run_id}.{session.attempt}.{name}.epoch"
        meeting = Meeting(name, path, details["uneven"], len(details["datasets"]))
    made = Shard(given["dataset"], world, rank, given["seed"], meeting)
    left = _left(name, began_from)
    if left and not given["split"]:
        # Each rank reads all of it, and goes on where it was itself.
        left = [left[session.rank % len(left)]]
    if left:
        made.goes_on_from(*_together(left))
    return made


def _left(name: str, checkpoint: str | None) -> list[dict[str, Any]]:
    """Where each rank was when the checkpoint was made."""
    if checkpoint is None:
        return []
    from carril._native import Storage

    text = Storage(checkpoint).read(_MANIFEST)
    position = json.loads(text).get("data_position") if text else None
    ranks = [json.loads(one).get(name) for one in position["ranks"] if one] if position else []
    return [one for one in ranks if one is not None]


def _together(ranks: list[dict[str, Any]]) -> tuple[int, int, list[list[tuple[int, int, int]]]]:
    """The seed, the epoch, and what was read of it."""
    epoch = min(one["epoch"] for one in ranks)
    behind = next(one for one in ranks if one["epoch"] == epoch)
    # A rank that is in the next epoch already has read all that it was dealt of this one.
    segment = [_position(one["position"]) if one["epoch"] == epoch else (1 << 62, 0, 0) for one in ranks]
    before = [[_position(one) for one in old] for old in behind["before"]]
    if any(position != (0, 0, 0) for position in segment):
        before.append(segment)
    return behind["seed"], epoch, before


def _position(given: list[int]) -> tuple[int, int, int]:
    pieces, done, rows = given
    return pieces, done, rows


def position() -> str | None:
    """Of every data set that this worker reads, for its report."""
    return json.dumps({name: one.position() for name, one in _shards.items()}) if _shards else None


def forget() -> None:
    """For a process that goes on as another worker."""
    _shards.clear()
