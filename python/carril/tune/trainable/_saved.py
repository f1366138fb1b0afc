"""The files of a class-form checkpoint: what the user saved, and a small file with the counts that belong to it."""

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, kind_of

if TYPE_CHECKING:
    from carril.tune.trainable.trainable import Trainable

DICT_FILE = "_dict_checkpoint.pkl"
COUNTS_FILE = ".trainable.json"


@dataclass
class Counts:
    """How far a trial had come. `returned` is the path inside the directory that `save_checkpoint` gave, if it did."""

    iteration: int = 0
    timesteps_total: int | None = None
    episodes_total: int | None = None
    time_total_s: float = 0.0
    returned: str | None = None


def write(trainable: "Trainable", directory: str) -> None:
    """Has a trainable save itself into a directory, and adds the counts."""
    state = trainable.get_state()
    returned = _kept(trainable, directory, trainable.save_checkpoint(directory))
    counts = Counts(
        iteration=trainable.iteration,
        timesteps_total=_plain(state["timesteps_total"]),
        episodes_total=_plain(state["episodes_total"]),
        time_total_s=float(state["time_total"]),
        returned=returned,
    )
    with open(os.path.join(directory, COUNTS_FILE), "w", encoding="utf-8") as file:
        json.dump(asdict(counts), file)


def _plain(count: Any) -> int | None:
    """A count that may be one of numpy's."""
    return None if count is None else int(count)


def _kept(trainable: "Trainable", directory: str, returned: Any) -> str | None:
    if isinstance(returned, dict):
        from carril._internal.pickling import dumps

        with open(os.path.join(directory, DICT_FILE), "wb") as file:
            file.write(dumps(returned))
        return None
    if returned is None:
        return None
    what = f"`{type(trainable).__name__}.save_checkpoint` returned"
    if not isinstance(returned, (str, os.PathLike)):
        raise ConfigTypeError(f"{what} {kind_of(returned)}: it must be None, a dict, or a path in the directory given")
    path = os.path.relpath(os.path.abspath(os.fspath(returned)), os.path.abspath(directory))
    if path == os.curdir:
        return None
    if path.split(os.sep)[0] == os.pardir:
        raise ConfigError(
            f"{what} `{os.fspath(returned)}`, which is not in the directory given",
            hints=["write into `checkpoint_dir`, and return nothing"],
        )
    return path


def load(trainable: "Trainable", directory: str, otherwise: Counts | None = None) -> None:
    """Has a trainable go on from a directory. `otherwise` are the counts of a checkpoint that holds none."""
    counts = _counts(directory) or otherwise or Counts()
    dict_file = os.path.join(directory, DICT_FILE)
    given: Any = os.path.join(directory, counts.returned) if counts.returned else directory
    if os.path.exists(dict_file):
        from carril._internal.pickling import loads

        with open(dict_file, "rb") as file:
            given = loads(file.read())
    # Before the user's code: it may ask for `self.iteration`.
    trainable._start_from(counts)
    trainable.load_checkpoint(given)


def _counts(directory: str) -> Counts | None:
    try:
        with open(os.path.join(directory, COUNTS_FILE), encoding="utf-8") as file:
            return Counts(**json.load(file))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"`{COUNTS_FILE}` in the checkpoint `{directory}` cannot be read: {error}") from None
