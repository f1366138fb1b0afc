"""Data sets of a run: given to the trainer, dealt to the workers, and resumed where a checkpoint left them.

TRAIN-DATA-1: with each report goes how far this rank has read; a checkpoint keeps that of every rank.
TRAIN-DATA-2: a run that goes on begins behind what was read before its checkpoint, also with another number of workers.
"""

import json
import random
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, NotAvailableError, kind_of

if TYPE_CHECKING:
    from carril._native import Positions
    from carril.data import DataIterator, Dataset
    from carril.data._plan import Plan
    from carril.data._split import Shard
    from carril.train._more_config import DataConfig
    from carril.train._session import SessionLike, StoredSession

_MANIFEST = ".manifest.json"

# Those of this worker that were asked for, by name.
_shards: "dict[str, Shard]" = {}
# Of data sets that were not asked for since this attempt began: how far they had been read when it did.
_carried: dict[str, str | None] = {}


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

    if callable(given) and not hasattr(given, "__getitem__") and not hasattr(given, "__iter__"):
        # A function that makes it, as Ray takes one.
        given = given()
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


def details_of(
    datasets: "Mapping[str, Dataset]", config: "DataConfig | None", workers: int, *, more_come: bool = False
) -> dict[str, Any]:
    """For the workers. With `more_come` a trial adds its own, by `details_in_trial`."""
    if not datasets and not more_come:
        return {}
    if config is not None and config.deals_itself:
        if more_come:
            raise NotAvailableError(
                f"`{type(config).__name__}.configure` with data sets of the `param_space` is not built yet",
                hints=["give the data sets to the trainer"],
            )
        return _dealt_by(config, datasets, workers)
    split = config.datasets_to_split if config is not None else "all"
    if not more_come:
        _check_split(split, datasets)
    from carril.data.context import DataContext

    made = {name: _detail(name, dataset, split, random.getrandbits(62)) for name, dataset in datasets.items()}
    context = DataContext.get_current()
    if config is not None:
        for name in made:
            made[name]["options"] = _options(config, name)
    uneven = config.uneven if config is not None else "drop"
    details = {"datasets": made, "data_context": context, "uneven": uneven}
    if more_come:
        # All ranks of a trial must have the same order.
        details.update(datasets_to_split=split, data_seed=random.getrandbits(62))
    return details


def _dealt_by(config: "DataConfig", datasets: "Mapping[str, Dataset]", workers: int) -> dict[str, Any]:
    """What the user's own `configure` gives each rank."""
    from carril.data.context import DataContext
    from carril.data.iterator import DataIterator

    # Nodes have no ids before the workers are placed.
    world = max(workers, 1)
    dealt = config.configure(
        datasets=dict(datasets), world_size=world, worker_handles=None, worker_node_ids=[""] * world
    )
    name = f"{type(config).__name__}.configure"
    if not isinstance(dealt, list) or len(dealt) != world or not all(isinstance(one, dict) for one in dealt):
        raise ConfigTypeError(
            f"`{name}` returned {kind_of(dealt)}: it must return a list of {world} dicts, one per rank"
        )
    for of_rank in dealt:
        for key, part in of_rank.items():
            if not isinstance(part, DataIterator):
                raise ConfigTypeError(
                    f"`{name}` returned {kind_of(part)} as {key!r}: it must be a data iterator",
                    hints=["`Dataset.streaming_split(world_size)` gives one for each rank"],
                )
    return {"datasets": {}, "dealt": dealt, "data_context": DataContext.get_current(), "uneven": config.uneven}


def details_in_trial(details: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What `details_of` has made, with the data sets of a trial's config in their places."""
    split, seed = details["datasets_to_split"], details["data_seed"]
    own = {name: _detail(name, dataset, split, seed) for name, dataset in checked(given).items()}
    datasets = {**details["datasets"], **own}
    _check_split(split, datasets)
    return {**details, "datasets": datasets}


def _detail(name: str, dataset: "Dataset", split: str | list[str], drawn: int) -> dict[str, Any]:
    seed = dataset._plan.seed
    return {
        "dataset": dataset,
        "split": split == "all" or name in split,
        "seed": seed if seed is not None else drawn,
    }


def _check_split(split: str | list[str], datasets: Mapping[str, Any]) -> None:
    unknown = [name for name in split if name not in datasets] if isinstance(split, list) else []
    if unknown:
        raise ConfigError(
            f"`DataConfig.datasets_to_split` names `{unknown[0]}`, which is no data set",
            hints=[f"there are {', '.join(datasets)}"],
        )


def environment_of(datasets: "Mapping[str, Dataset]") -> dict[str, str]:
    """Workers whose data sets have functions know it before they have run anything."""
    if not any(one._plan.operations for one in datasets.values()):
        return {}
    from carril._internal.mappers import DATA_FUNCTIONS

    return {DATA_FUNCTIONS: "1"}


def words_of(datasets: "Mapping[str, Dataset]") -> dict[str, str]:
    """Each in words that say which rows it has, as far as that is known without reading them."""
    return {name: _words(dataset._plan) for name, dataset in datasets.items()}


def _words(plan: "Plan") -> str:
    from carril.data._plan import Memory, Read

    origin, facts = plan.origin, [plan.name]
    if isinstance(origin, Memory):
        facts.append(f"{sum(map(len, origin.blocks)):,} rows")
    elif isinstance(origin, Read):
        paths = origin.spec.get("paths", [])
        if len(paths) > 1:
            facts.append(f"paths {zlib.crc32(json.dumps(paths).encode()):08x}")
        facts.extend(f"{key}={value!r}" for key, value in origin.spec.get("options", {}).items())
    if plan.seed is not None:
        facts.append(f"seed {plan.seed}")
    return ", ".join(facts)


def _options(config: "DataConfig", name: str) -> Any:
    """The execution options of one data set; None for those of the context."""
    from carril.data.context import ExecutionOptions

    given = config.options_of(name)
    if given is not None and not isinstance(given, ExecutionOptions):
        raise ConfigTypeError(
            f"`DataConfig.execution_options` is {type(given).__name__}: it must be an `ExecutionOptions`",
            hints=["`carril.data.ExecutionOptions(resource_limits=ExecutionResources(object_store_memory=…))`"],
        )
    return given


def shard(name: str | None, details: Mapping[str, Any], session: "SessionLike") -> "DataIterator":
    """This worker's part of a data set."""
    dealt = details.get("dealt")
    datasets = (dealt[session.rank] if dealt else details.get("datasets")) or {}
    if name is None and len(datasets) == 1:
        name = next(iter(datasets))
    if name is None or name not in datasets:
        there = ", ".join(f"`{one}`" for one in datasets) or "none: the trainer was given no `datasets`"
        asked = "no data set was named" if name is None else f"no data set is named {name!r}"
        from carril._internal.near import near

        meant = None if name is None else near(name, datasets)
        guess = f"did you mean `{meant}`? " if meant is not None else ""
        raise KeyError(f"{asked}; {guess}there are {there}")
    if name not in _shards:
        from carril.data.context import DataContext

        DataContext._current = details["data_context"]
        if dealt:
            part: DataIterator = datasets[name]
            return part
        _shards[name] = _made(name, details, session)
    return _shards[name]


def _made(name: str, details: Mapping[str, Any], session: "SessionLike") -> "Shard":
    from carril._native import Session
    from carril.data._split import Meeting, Shard
    from carril.train._session import is_stored

    given = details["datasets"][name]
    world, rank = (session.world_size, session.rank) if given["split"] else (1, 0)
    meeting = saved = tell_read = None
    if is_stored(session):
        tell_read = partial(session.set_rows_read, name)
        path = f"{session.node_directory}/{session.run_id}.{session.attempt}.{name}.epoch"
        # A trial's session stands before the native one.
        native = getattr(session, "_native", session)
        native = native if isinstance(native, Session) else None
        meeting = Meeting(name, path, details["uneven"], len(details["datasets"]), native)
        saved = _saved(name, given["split"], session)
    options = given.get("options")
    context = (
        details["data_context"] if options is None else replace(details["data_context"], execution_options=options)
    )
    made = Shard(given["dataset"], world, rank, given["seed"], meeting, saved=saved, tell_read=tell_read)
    made.context = context
    return made


def _saved(name: str, is_split: bool, session: "StoredSession") -> "Positions | None":
    """Where each rank was when the checkpoint was made. Where each reads all of it, a rank resumes where it was itself."""
    checkpoint = session.began_from
    if checkpoint is None:
        return None
    from carril._native import Positions
    from carril.train._places import place
    from carril.train._session import storage_filesystem

    manifest = place(checkpoint, storage_filesystem()).read(_MANIFEST)
    if manifest is None:
        raise CheckpointError(f"`{checkpoint}` does not say how far `{name}` was read: it is gone")
    saved = Positions.of_manifest(manifest, checkpoint, name)
    if not len(saved):
        return None
    return saved if is_split else saved.of_rank(session.rank)


def position(details: Mapping[str, Any], session: "StoredSession") -> str | None:
    """Of every data set that this worker reads, or that was read before it resumed, for its report."""
    for name, given in (details.get("datasets") or {}).items():
        if name not in _shards and name not in _carried:
            saved = _saved(name, given["split"], session)
            _carried[name] = saved.carried() if saved is not None else None
    kept = _carried | {name: one.progress() for name, one in _shards.items()}
    told = [f"{json.dumps(name)}: {progress}" for name, progress in kept.items() if progress is not None]
    return f"{{{', '.join(told)}}}" if told else None


class Noted(NamedTuple):
    """What a rank returned, and by data set how many rows all ranks were handed and how many of this one's were left out."""

    value: Any
    left_out: dict[str, tuple[int, int]]


def noted(value: Any) -> Any:
    """The value alone where no row was left out."""
    left_out = {name: (one.handed, one.left_out) for name, one in _shards.items() if one.left_out}
    return Noted(value, left_out) if left_out else value


def without_notes(values: list[Any]) -> tuple[list[Any], list[str]]:
    """What the ranks returned, and a warning for each data set of which more than a hundredth was left out."""
    handed: dict[str, int] = {}
    left_out: dict[str, int] = {}
    for noted in values:
        for name, (rows, missing) in noted.left_out.items() if isinstance(noted, Noted) else ():
            handed[name] = max(handed.get(name, 0), rows)
            left_out[name] = left_out.get(name, 0) + missing
    warnings = [
        f"{missing:,} of {handed[name] + missing:,} rows of `{name}` were left out, so that all ranks had equally many "
        f'({missing * 100 / (handed[name] + missing):.1f} %): `DataConfig(uneven="pad")` or `"repeat"` hands them over'
        for name, missing in left_out.items()
        if missing * 100 > handed[name] + missing
    ]
    return [one.value if isinstance(one, Noted) else one for one in values], warnings


def forget() -> None:
    """For a process that goes on as another worker."""
    _shards.clear()
    _carried.clear()
