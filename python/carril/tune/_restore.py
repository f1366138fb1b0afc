"""What an experiment keeps of its tuner, and the tuner that is made of it again.

One file, `tuner.pkl`, each part pickled for itself, so that a part that is given anew need not be opened. To read the
results of an experiment it is never opened.

TRESTORE-1: it is a pickle: whoever can write it can run code here. Only `Tuner.restore` opens it, and `fit()` that goes on.
"""

import os
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

from carril._internal.pickling import dumps, loads
from carril.exceptions import ConfigError
from carril.train._config import RunConfig, coerce
from carril.train._locations import is_uri, parent_and_name
from carril.train._places import place
from carril.tune._config import TuneConfig
from carril.tune._stored import read_experiment

if TYPE_CHECKING:
    from carril.tune._plan import Plan, Resuming
    from carril.tune.tuner import Tuner

T = TypeVar("T", bound="Tuner")

FILE = "tuner.pkl"
_VERSION = 1


def pickled(plan: "Plan") -> bytes:
    """The content of `tuner.pkl`: what cannot be pickled is left out, and named."""
    import copy

    run_config = copy.copy(plan.run_config)
    run_config.name = run_config.storage_path = run_config.local_dir = run_config.storage_filesystem = None
    parts = {"param_space": plan.space, "tune_config": plan.tune_config, "run_config": run_config}
    kept: dict[str, bytes] = {}
    lost: dict[str, str] = {}
    for name, value in parts.items():
        try:
            kept[name] = dumps(value)
        except Exception as error:
            lost[name] = f"{type(error).__name__}: {error}"
    return pickle.dumps({"version": _VERSION, "trainable": plan.trainable_name, "kept": kept, "lost": lost})


def keep(plan: "Plan", path: str) -> None:
    """Puts `tuner.pkl` into an experiment's directory. Others cannot read it: it may hold secrets."""
    if is_uri(path) or plan.run_config.storage_filesystem is not None:
        place(path, plan.run_config.storage_filesystem).write(FILE, pickled(plan))
        return
    part = os.path.join(path, f"{FILE}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pickled(plan))
    os.replace(part, os.path.join(path, FILE))


def restore(
    kind: type[T],
    path: "str | os.PathLike[str]",
    trainable: Any,
    resuming: "Resuming",
    given: dict[str, Any],
    storage_filesystem: Any,
) -> T:
    """The tuner of `Tuner.restore`."""
    stored = read_experiment(path, storage_filesystem)
    data = place(stored.path, stored.filesystem).read(FILE)
    content: dict[str, Any] = loads(data) if data is not None else {"kept": {}, "lost": {}}
    _check_name(trainable, stored.record)

    def part(name: str) -> Any:
        if given[name] is not None:
            return given[name]
        if name in content["lost"]:
            raise ConfigError(
                f"`{name}` of the experiment could not be kept: {content['lost'][name]}",
                hints=[f"give it to `restore`: `Tuner.restore(path, trainable, {name}=…)`"],
            )
        return loads(content["kept"][name]) if name in content["kept"] else None

    run_config = coerce(RunConfig, part("run_config"), "run_config")
    parent, name = parent_and_name(stored.path)
    run_config.name, run_config.storage_path = name, parent
    run_config.storage_filesystem = stored.filesystem
    tune_config = coerce(TuneConfig, part("tune_config"), "tune_config")
    return kind(
        trainable, param_space=part("param_space"), tune_config=tune_config, run_config=run_config, _resuming=resuming
    )


def _check_name(trainable: Any, record: dict[str, Any]) -> None:
    from carril.tune.trainable import check_trainable

    name, before = check_trainable(trainable), record.get("trainable")
    if before is not None and name != before:
        raise ConfigError(
            f"the experiment tuned `{before}`, and `{name}` is given",
            hints=[f"give the trainable that the experiment had, or one that is called `{before}`"],
        )
