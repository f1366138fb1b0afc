"""`ray.tune.utils`: the tools that scripts take from there, and `pretty_print` of `ray.tune.logger`."""

import copy
import time
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "date_str",
    "deep_update",
    "flatten_dict",
    "merge_dicts",
    "unflatten_dict",
    "unflattened_lookup",
    "validate_save_restore",
    "wait_for_gpu",
]

_NOT_SHOWN = ("config", "hist_stats")


def flatten_dict(
    dt: Mapping[Any, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False
) -> dict[Any, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`; lists by their indices where `flatten_list` is set."""

    def parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
        if isinstance(value, Mapping):
            return value.items()
        return enumerate(value) if flatten_list and isinstance(value, list) else None

    flat: dict[Any, Any] = {}

    def add(path: tuple[str, ...], items: Iterable[tuple[Any, Any]]) -> None:
        for key, value in items:
            if prevent_delimiter and delimiter in str(key):
                raise ValueError(f"the key {key!r} has the delimiter {delimiter!r} in it: use another one")
            inside = parts(value)
            if inside is None:
                flat[delimiter.join((*path, str(key))) if path else key] = value
            else:
                add((*path, str(key)), inside)

    add((), dt.items())
    return flat


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """The reverse of `flatten_dict`."""
    nested: dict[str, Any] = {}
    for key, value in dt.items():
        *path, last = key.split(delimiter)
        inner = nested
        for one in path:
            inner = inner.setdefault(one, {})
        inner[last] = value
    return nested


def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **kwargs: Any) -> Any:
    """The value at `a/b` of nested dicts and lists; `default=` where there is none."""
    found = lookup
    try:
        for part in flat_key.split(delimiter):
            found = found[int(part)] if isinstance(found, (list, tuple)) else found[part]
    except (KeyError, IndexError, TypeError, ValueError):
        if "default" in kwargs:
            return kwargs["default"]
        raise KeyError(flat_key) from None
    return found


def deep_update(
    original: dict[Any, Any],
    new_dict: Mapping[Any, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: list[str] | None = None,
    override_all_if_type_changes: list[str] | None = None,
    override_all_key_list: list[str] | None = None,
) -> dict[Any, Any]:
    """Puts the values of one nested dict into another, in place, and refuses keys that it does not have."""
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise Exception(f"unknown key {key!r}: the keys are {sorted(map(str, original))}")
        old = original.get(key)
        changes = (
            isinstance(value, Mapping)
            and isinstance(old, dict)
            and value.get("type", old.get("type")) != old.get("type")
        )
        is_replaced = key in (override_all_key_list or ()) or (changes and key in (override_all_if_type_changes or ()))
        if isinstance(value, Mapping) and isinstance(old, dict) and not is_replaced:
            deep_update(old, value, new_keys_allowed or key in (allow_new_subkey_list or ()))
        else:
            original[key] = value
    return original


def merge_dicts(d1: Mapping[Any, Any], d2: Mapping[Any, Any]) -> dict[Any, Any]:
    """A new nested dict with the values of both; the second one's count."""
    return deep_update(copy.deepcopy(dict(d1)), d2, new_keys_allowed=True)


def date_str() -> str:
    """As in the names of experiments."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def wait_for_gpu(
    gpu_id: int | str | None = None,
    target_util: float = 0.01,
    retry: int = 20,
    delay_s: float = 5,
    gpu_memory_limit: float | None = None,
) -> bool:
    """Waits until the memory of a GPU (by index or UUID; by default this process's first) is used to at most `target_util`."""
    import os

    if gpu_memory_limit is not None:
        raise ValueError("`gpu_memory_limit` is not known any more: use `target_util`")
    wanted = str(gpu_id) if gpu_id is not None else os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if not wanted:
        raise RuntimeError(
            "no GPU is assigned to this process\nhint: ask for one in `resources_per_trial`, or pass `gpu_id`"
        )
    for attempt in range(int(retry)):
        used = _memory_used()
        if wanted not in used:
            raise ValueError(f"there is no GPU {wanted!r}: there are {', '.join(sorted(used)) or 'none'}")
        if used[wanted] <= target_util:
            return True
        print(f"waiting for GPU {wanted}: {used[wanted]:.0%} of its memory is used", flush=True)
        if attempt + 1 < retry:
            time.sleep(delay_s)
    raise RuntimeError(f"GPU {wanted} did not become free in {int(retry)} looks, {delay_s:g} s apart")


def _memory_used() -> dict[str, float]:
    """The share of each GPU's memory that is used, by index and by UUID."""
    import subprocess

    query = ["nvidia-smi", "--query-gpu=index,uuid,memory.used,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"`nvidia-smi` does not tell what is used: {error}") from None
    used = {}
    for index, uuid, taken, total in ([part.strip() for part in line.split(",")] for line in lines):
        used[index] = used[uuid] = float(taken) / float(total)
    return used


def validate_save_restore(trainable_cls: Any, config: dict[str, Any] | None = None, num_gpus: int = 0) -> bool:
    """True if an object of a `Trainable` class trains on from the checkpoint of another one; an error tells what does not."""
    first, second = trainable_cls(config), trainable_cls(config)
    try:
        before = first.train()["training_iteration"]
        second.restore(first.save())
        after = second.train()["training_iteration"]
        if after != before + 1:
            raise ValueError(f"`{trainable_cls.__name__}` was at {before}, and is at {after} after one step more")
    finally:
        first.stop()
        second.stop()
    return True


def pretty_print(result: Mapping[str, Any], exclude: Iterable[str] | None = None) -> str:
    """A result as indented text, without the configuration and what is None."""
    hidden = {*_NOT_SHOWN, *(exclude or ())}
    return "\n".join(_lines({key: value for key, value in result.items() if key not in hidden}, 0)) + "\n"


def _lines(values: Mapping[str, Any], depth: int) -> Iterable[str]:
    for key, value in sorted(values.items(), key=lambda one: str(one[0])):
        if value is None:
            continue
        if isinstance(value, Mapping) and value:
            yield f"{'  ' * depth}{key}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, (list, tuple)) and value:
            yield f"{'  ' * depth}{key}:"
            yield from (f"{'  ' * depth}- {one}" for one in value)
        else:
            shown = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
            yield f"{'  ' * depth}{key}: {shown if not isinstance(shown, bool) else str(shown).lower()}"
