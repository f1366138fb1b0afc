"""What can be done with rows as they come: batches, tensors, rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from carril.data import _convert
from carril.data._numbers import seed_of, whole
from carril.data.context import DataContext
from carril.exceptions import ConfigError

if TYPE_CHECKING:
    import torch

    from carril._native import Block

_UNSET: Any = object()


class _Passes:
    """Something to iterate over again and again: each time is another pass."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class DataIterator(ABC):
    """Rows, batch by batch."""

    @abstractmethod
    def _blocks(
        self, batch_size: int | None, drop_last: bool, local_shuffle: int | None, local_seed: int | None
    ) -> "Iterator[Block]":
        """One pass."""

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        prefetch_blocks: int = 0,
    ) -> Iterable[Any]:
        """Batches of `batch_size` rows; reading ahead is bounded by memory, not by a number of batches."""
        _convert.check_format(batch_format)
        rows = None if batch_size is None else whole(batch_size, 1, f"batch_size={batch_size!r}", "rows")
        mixed = local_shuffle_buffer_size
        if mixed is not None:
            mixed = whole(mixed, 0, f"local_shuffle_buffer_size={mixed!r}", "rows") or None
        seed = seed_of(local_shuffle_seed)

        def begin() -> Iterator[Any]:
            blocks = self._blocks(rows, drop_last, mixed, seed)
            for block in blocks:
                yield _convert.to_format(block, batch_format)

        return _Passes(begin)

    def get_context(self) -> DataContext:
        """The settings by which rows are read here."""
        return DataContext.get_current()

    def iter_rows(self, **_: Any) -> Iterable[dict[str, Any]]:
        return _Passes(self._rows)

    def _rows(self) -> Iterator[dict[str, Any]]:
        """One pass, row by row."""
        for block in self._blocks(None, False, None, None):
            yield from _convert.to_rows(block)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: "torch.dtype | Mapping[str, torch.dtype] | None" = None,
        device: str = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
        prefetch_blocks: int = 0,
    ) -> Iterable[Any]:
        """Dictionaries of tensors, or what `collate_fn` makes of a dictionary of arrays."""
        if collate_fn is not None and (dtypes is not None or pin_memory):
            raise ConfigError(
                "`collate_fn` makes the tensors itself: `dtypes` and `pin_memory` are not for it",
                hints=["set the types in `collate_fn`"],
            )
        numpy_batches = self.iter_batches(
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )

        def begin() -> Iterator[Any]:
            place = _device() if device == "auto" else device
            for batch in numpy_batches:
                if collate_fn is not None:
                    made = collate_fn({name: _writable(array) for name, array in batch.items()})
                    yield (
                        made
                        if device == "auto" and str(place) == "cpu"
                        else _each(made, lambda tensor: tensor.to(place))
                    )
                else:
                    _check_dtypes(dtypes, batch)
                    yield {name: _tensor(name, array, dtypes, place, pin_memory) for name, array in batch.items()}

        return _Passes(begin)


def _check_dtypes(dtypes: Any, batch: Mapping[str, Any]) -> None:
    unknown = [name for name in dtypes if name not in batch] if isinstance(dtypes, Mapping) else []
    if unknown:
        there = ", ".join(f"`{name}`" for name in batch)
        raise ConfigError(f"`dtypes` has a type for `{unknown[0]}`, and there is no such column; there are {there}")


def _writable(array: Any) -> Any:
    """What is held in memory is not what is handed over: torch has no tensors that one must not write into."""
    return array if array.flags.writeable else array.copy()


def _tensor(name: str, array: Any, dtypes: Any, device: Any, pin_memory: bool) -> Any:
    """A tensor of a column; of samples that are tuples one for each of their places, as torch's own loaders make them."""
    import torch

    wanted = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes

    def finished(tensor: "torch.Tensor") -> "torch.Tensor":
        if wanted is not None:
            tensor = tensor.to(wanted)
        if pin_memory and torch.cuda.is_available():
            tensor = tensor.pin_memory()
        return tensor if str(device) == "cpu" else tensor.to(device)

    if array.dtype == object and len(array) and all(isinstance(row, tuple) for row in array):
        try:
            return _each(torch.utils.data.default_collate(list(array)), finished)
        except (TypeError, RuntimeError) as error:
            raise _no_tensor(name, array) from error
    if array.dtype == object:
        array = _stacked(array)
    if array.dtype.kind not in "biuf":
        raise _no_tensor(name, array)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(f"i{min(2 * array.dtype.itemsize, 8)}")
    return finished(torch.from_numpy(_writable(array)))


def _stacked(array: Any) -> Any:
    """Of lists of numbers that are equally long one array; anything else as it is."""
    import numpy

    if not len(array) or not all(isinstance(row, list | numpy.ndarray) for row in array):
        return array
    try:
        return numpy.stack([numpy.asarray(row) for row in array])
    except ValueError:  # they are of several lengths
        return array


def _no_tensor(name: str, array: Any) -> ConfigError:
    return ConfigError(
        f"column `{name}` cannot be a tensor: its rows are {_kind(array)}",
        hints=["leave it out with `select_columns`, make numbers of it with `map_batches`, or give a `collate_fn`"],
    )


def _kind(array: Any) -> str:
    if array.dtype != object:
        return {"m": "times", "M": "times", "U": "lists of texts"}.get(array.dtype.kind, f"of type `{array.dtype}`")
    first = next((row for row in array if row is not None), None)
    if isinstance(first, tuple):
        return f"tuples of {', '.join(f'`{type(value).__name__}`' for value in first)}"
    if first is not None and any(row is None for row in array):
        return f"of type `{type(first).__name__}`, and some are missing"
    if isinstance(first, list) or hasattr(first, "shape"):
        return "lists or tensors of several shapes"
    return f"of type `{type(first).__name__}`"


def _each(batch: Any, change: Callable[[Any], Any]) -> Any:
    """What a batch is with each of its tensors changed."""
    if isinstance(batch, Mapping):
        return {name: _each(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)(_each(value, change) for value in batch)
    return change(batch) if hasattr(batch, "to") else batch


def _device() -> Any:
    """That of this training worker, otherwise the CPU."""
    from carril.train import _session

    if not _session.is_running():
        return "cpu"
    from carril.train.torch import get_device

    return get_device()
