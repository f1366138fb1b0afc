"""A data set: rows that are read, changed and handed over when somebody asks for them."""

import functools
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carril._native import Block
from carril.data import _convert, _parts, _progress, _sink, _write
from carril.data._functions import Operation, operation
from carril.data._later import METHODS
from carril.data._numbers import seed_of, whole
from carril.data._plan import Columns, Derived, Memory, Opened, Plan, Read, Subset, Union
from carril.data._schema import Schema
from carril.data.context import DataContext
from carril.data.iterator import DataIterator
from carril.exceptions import ConfigError, ConfigTypeError, NoColumnError, NotAvailableError

if TYPE_CHECKING:
    import pandas

    from carril.data._split import Shard


# 0.7 + 0.1 is less than 0.8: what is less than a whole number by so little is that number.
_ROUNDING = 1e-6


class _MissingMethodError(NotAvailableError, AttributeError):
    """`hasattr` says no. Tracebacks call it what it is for Python: the name of this class says nothing to a user."""

    __module__ = "builtins"
    __qualname__ = "AttributeError"

    def __reduce__(self) -> tuple[Any, ...]:
        # By its name it would be found as Python's own.
        return _missing_method, (self.message, self.hints)


_MissingMethodError.__name__ = "AttributeError"


def _missing_method(message: str, hints: list[str]) -> _MissingMethodError:
    return _MissingMethodError(message, hints=hints)


class Dataset(DataIterator):
    """Rows in columns. Transforms are lazy and make another data set; nothing is read before it is used.

    Made by `read_parquet`, `from_items` and the like.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opened: Opened | None = None
        self._passes = itertools.count()
        self._last: Any = None
        # For its parts, once they were asked for.
        self._to_cut: _parts.Whole | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # What is open stays here. What is made only once is made before it travels.
        return (Dataset, (_travelling(self._plan),))

    def _open(self) -> Opened:
        if self._opened is None:
            self._opened = Opened(self._plan)
        return self._opened

    def _blocks(
        self,
        batch_size: int | None = None,
        drop_last: bool = False,
        local_shuffle: int | None = None,
        local_seed: int | None = None,
    ) -> Iterator[Block]:
        # A seed means the same order each time; without one, each pass has its own.
        epoch = 0 if self._plan.seed is not None else next(self._passes)
        stream = self._open().stream(
            epoch, batch_size=batch_size, drop_last=drop_last, local_shuffle=local_shuffle, seed=local_seed
        )
        self._last = stream
        return iter(stream)

    def _all_blocks(self) -> Iterator[Block]:
        """One pass that Carril makes for itself: how far it has come is shown when it takes long."""
        blocks = self._blocks()
        if not DataContext.get_current().enable_progress_bars:
            return blocks
        return _progress.shown(self._plan.name, self._last)

    def _derive(self, name: str, make: Callable[[], Sequence[Block]]) -> "Dataset":
        """A data set in memory that is made of this one when it is first used."""
        return Dataset(Plan(Derived(make, name)))

    def _held(self, blocks: Iterable[Block]) -> list[Block]:
        """These blocks; where there are none, one without rows that has the columns."""
        held = list(blocks)
        if not held and (empty := self._empty()) is not None:
            return [empty.slice(0, 0)]
        return held

    def _settled(self) -> "Dataset":
        """This one, such that a transform may be added behind everything: a limit comes before what follows it.

        Where rows are counted, fewer of them are read; otherwise those that are wanted are held.
        """
        plan = self._plan
        if plan.limit is None:
            return self
        if plan.shuffle != "none" or not self._open().is_counted:
            return self._derive("limit", lambda: self._held(self._blocks()))
        rows = tuple(rows or 0 for rows, _ in self._open().source.units())
        first = {"range": {"begin": 0, "end": plan.limit}}
        return Dataset(replace(plan, origin=Subset(plan.origin, first, rows), limit=None))

    def _then(self, step: Columns | Operation) -> "Dataset":
        return Dataset(self._settled()._plan.then(step))

    # Functions of the user's. `options`: `fn_args`, `fn_kwargs`, `fn_constructor_args`, `fn_constructor_kwargs`,
    # `concurrency`, `compute`; what Ray has besides, such as `num_cpus`, has no effect.

    def map(self, fn: Callable[..., dict[str, Any]], **options: Any) -> "Dataset":
        """Another row for each row."""
        return self._then(operation("map", fn, options))

    def flat_map(self, fn: Callable[..., Iterable[dict[str, Any]]], **options: Any) -> "Dataset":
        """Any number of rows for each row."""
        return self._then(operation("flat_map", fn, options))

    def filter(self, fn: Callable[..., bool] | None = None, expr: Any = None, **options: Any) -> "Dataset":
        """The rows for which the function says so."""
        if fn is not None and expr is not None:
            raise ConfigError("`filter` wants either a function or an expression, and was given both")
        if expr is not None or isinstance(fn, str):
            raise NotAvailableError(
                f"`filter({expr if fn is None else fn!r})`: expressions are not built yet",
                hints=["give a function of a row: `ds.filter(lambda row: row['x'] > 0)`"],
            )
        if fn is None:
            raise ConfigError("`filter` wants a function of a row", hints=["`ds.filter(lambda row: row['x'] > 0)`"])
        return self._then(operation("filter", fn, options))

    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        **options: Any,
    ) -> "Dataset":
        """What a function makes of a batch: a dictionary of arrays, a data frame or a table, or several one after the other.

        A class is made once in each process. `batch_size=None` is what was read in one go.
        """
        _convert.check_format(batch_format)
        if batch_size is None or batch_size in ("default", "auto"):
            rows = None
        else:
            rows = whole(batch_size, 1, f"batch_size={batch_size!r}", "rows")
        return self._then(operation("map_batches", fn, options, batch_size=rows, batch_format=batch_format))

    def add_column(
        self, col: str, fn: Callable[..., Any], *, batch_format: str = "pandas", concurrency: Any = None, **_: Any
    ) -> "Dataset":
        """Another column, by a function of a batch."""
        _convert.check_format(batch_format)
        options = {"concurrency": concurrency}
        return self._then(operation("add_column", fn, options, column=col, batch_format=batch_format))

    # Columns.

    def select_columns(self, cols: str | Sequence[str], **_: Any) -> "Dataset":
        names = _names(cols, "select_columns")
        plan = self._plan
        if isinstance(plan.origin, Read) and plan.origin.reads_columns and not plan.steps:
            # The reader adds paths and partitions to what it is asked for: the step leaves them out again.
            plan = replace(plan, origin=plan.origin.with_columns(names))
        return Dataset(plan)._then(Columns({"select": names}))

    def drop_columns(self, cols: str | Sequence[str], **_: Any) -> "Dataset":
        names = _names(cols, "drop_columns")
        if self._has_known_columns and (missing := [name for name in names if name not in self.columns()]):
            there = ", ".join(f"`{name}`" for name in self.columns())
            raise NoColumnError(f"there is no column `{missing[0]}`; there are {there}")
        return self._then(Columns({"drop": names}))

    @property
    def _has_known_columns(self) -> bool:
        """What functions make, and what is made only when it is wanted, is seen when rows come."""
        return isinstance(self._plan.origin, Read | Memory) and not self._plan.operations

    def rename_columns(self, names: Mapping[str, str] | Sequence[str], **_: Any) -> "Dataset":
        """By a dictionary of old and new names, or by new names for all columns."""
        if not isinstance(names, Mapping):
            given = _texts(names, "rename_columns")
            there = self.columns()
            if len(there) != len(given):
                raise ConfigError(f"`rename_columns` was given {len(given)} names for {len(there)} columns")
            names = dict(zip(there, given, strict=True))
        if not names:
            raise ConfigError("`rename_columns` was given no names")
        _texts([*names, *names.values()], "rename_columns")
        others = [name for name in self.columns() if name not in names] if self._has_known_columns else []
        _convert.check_names([*others, *names.values()])
        return self._then(Columns({"rename": [list(pair) for pair in names.items()]}))

    # Order and size.

    def random_shuffle(self, *, seed: int | None = None, **_: Any) -> "Dataset":
        """The rows mixed: all of them where they fit into 64 MB and an eighth of the budget, otherwise window by window."""
        return Dataset(replace(self._settled()._plan, shuffle="rows", seed=seed_of(seed)))

    def randomize_block_order(self, *, seed: int | None = None, **_: Any) -> "Dataset":
        """What is read as one piece changes places; its rows stay together."""
        return Dataset(replace(self._settled()._plan, shuffle="units", seed=seed_of(seed)))

    def limit(self, limit: int) -> "Dataset":
        limit = whole(limit, 0, f"limit({limit!r})", "rows")
        there = self._plan.limit
        limit = limit if there is None else min(limit, there)
        return Dataset(replace(self._plan, limit=limit)) if self._opened is None else replace_limit(self, limit)

    def union(self, *others: "Dataset") -> "Dataset":
        every = (self, *others)
        plans = [one._plan for one in every]
        empties = [one._empty() for one in every]
        if all(plan.shuffle == "none" and plan.limit is None for plan in plans) and None not in empties:
            blocks = Block.alike([empty for empty in empties if empty is not None])
            return Dataset(Plan(Union(tuple(plans), blocks[0])))
        # What has an order of its own, or an end, is read to it.
        return self._derive("union", lambda: [block for one in every for block in one._all_blocks()])

    def zip(self, *others: "Dataset") -> "Dataset":
        """The columns of all beside each other, row by row. A name that is there already gets `_1`, `_2` and so on."""
        if not others:
            raise ConfigError("`zip` wants another data set")
        every = (self, *others)

        def make() -> list[Block]:
            wholes = [one._whole() for one in every]
            rows = [len(whole) for whole in wholes]
            if len(set(rows)) > 1:
                told = " and ".join(f"{number:,}" for number in rows)
                raise ConfigError(f"`zip` wants data sets with equally many rows, and these have {told}")
            names: list[str] = []
            beside: list[Block] = []
            for block in wholes:
                renamed = []
                for name in block.names:
                    free = (f"{name}_{number}" for number in itertools.count(1))
                    here = name if name not in names else next(one for one in free if one not in names)
                    names.append(here)
                    renamed.append((name, here))
                beside.append(block.project(renamed))
            return [functools.reduce(Block.beside, beside)]

        return self._derive("zip", make)

    def random_sample(self, fraction: float, *, seed: int | None = None) -> "Dataset":
        """So much of the rows, drawn by chance, in their order."""
        if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise ConfigError(f"`random_sample({fraction!r})` is no part of a whole", hints=["give 0 to 1"])
        cut = self._cut()
        seed = random.getrandbits(63) if seed is None else seed_of(seed)
        return cut.drawn(round(cut.rows * fraction), seed or 0)[1]

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The values of a column, each once, in the order in which they first come."""
        found: dict[Any, None] = {}
        for block in self.select_columns(column)._all_blocks():
            found.update(dict.fromkeys(block.values(0)))
        return [value for value in found if value is not None or not ignore_nulls]

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        shuffle: bool = False,
        **_: Any,
    ) -> "Dataset":
        """So many blocks, or blocks of so many rows."""
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ConfigError("`repartition` wants either `num_blocks` or `target_num_rows_per_block`")
        if num_blocks is not None:
            num_blocks = whole(num_blocks, 1, f"repartition({num_blocks!r})", "blocks")
        else:
            told = f"target_num_rows_per_block={target_num_rows_per_block!r}"
            target_num_rows_per_block = whole(target_num_rows_per_block, 1, told, "rows")
        source = self.random_shuffle() if shuffle else self

        def make() -> list[Block]:
            blocks = source._held(source._all_blocks())
            if not blocks:
                return []
            rows = Block.concat(blocks)
            if num_blocks is None:
                assert target_num_rows_per_block is not None
                bounds = [*range(0, len(rows), target_num_rows_per_block), len(rows)]
            else:
                bounds = [len(rows) * number // num_blocks for number in range(num_blocks + 1)]
            return [rows.slice(begin, end - begin) for begin, end in itertools.pairwise(bounds)]

        return self._derive("repartition", make)

    # Use.

    def materialize(self) -> "Dataset":
        """The same rows, read and held in memory."""
        made = MaterializedDataset(Plan(Memory(tuple(self._held(self._all_blocks())), self._plan.name)))
        made._open()
        return made

    def count(self) -> int:
        opened = self._open()
        if opened.is_counted:
            rows = sum(rows or 0 for rows, _ in opened.source.units())
        else:
            return sum(len(block) for block in self._all_blocks())
        return rows if self._plan.limit is None else min(rows, self._plan.limit)

    def schema(self, fetch_if_missing: bool = True) -> "Schema | None":
        """Of what functions make it is seen in the first rows, unless `fetch_if_missing` is false: then it is None."""
        block = self._empty() if fetch_if_missing or not self._plan.operations else None
        has_none = block is None or (not block.names and not len(block) and isinstance(self._plan.origin, Memory))
        return Schema(block) if block is not None and not has_none else None

    def _empty(self) -> Block | None:
        """A block with the columns of this data set."""
        opened = self._open()
        if not self._plan.operations:
            block = opened.source.empty()
            for transform in opened.transforms():
                block = transform.apply(block)
            return block
        first = next(iter(replace_limit(self, 1)._blocks()), None)
        last = self._plan.operations[-1]
        if first is None and last.kind == "filter":
            # It left no row, and has the columns of what it was given.
            steps = tuple(step for step in self._plan.steps if step is not last)
            return Dataset(replace(self._plan, steps=steps, limit=None))._empty()
        return first

    def columns(self, fetch_if_missing: bool = True) -> Any:
        """Their names; None where functions make them and `fetch_if_missing` is false."""
        if not fetch_if_missing and self._plan.operations:
            return None
        block = self._empty()
        return [] if block is None else block.names

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        return list(itertools.islice(self.limit(limit).iter_rows(), limit))

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        rows = list(self.iter_rows()) if limit is None else self.take(limit + 1)
        if limit is not None and len(rows) > limit:
            raise ValueError(f"the data set has more than {limit} rows: `take({limit})` takes the first of them")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        batches = self.limit(batch_size).iter_batches(batch_size=batch_size, batch_format=batch_format)
        batch = next(iter(batches), None)
        if batch is None:
            raise ValueError("the data set is empty: there is no batch to take")
        return batch

    def show(self, limit: int = 20) -> None:
        for row in self.take(limit):
            print(row)

    def to_pandas(self, limit: int | None = None) -> "pandas.DataFrame":
        import pandas

        frames = [_convert.to_pandas(block) for block in Block.alike(list(self._all_blocks()))]
        frame = pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=self.columns())
        if limit is not None and len(frame) > limit:
            raise ValueError(f"the data set has {len(frame)} rows, and {limit} were asked for at most")
        return frame

    def to_arrow_refs(self) -> list[Any]:
        return [_convert.to_arrow(block) for block in self._all_blocks()]

    def input_files(self) -> list[str]:
        return list(self._open().source.files())

    def num_blocks(self) -> int:
        return len(self._open().source.units())

    def size_bytes(self) -> int:
        return sum(size for _, size in self._open().source.units())

    def stats(self) -> str:
        opened = self._open()
        units = opened.source.units()
        lines = [
            f"{self._plan.origin.name}: {len(units)} units, {sum(size for _, size in units):,} bytes in memory at most"
        ]
        lines += [f"{operation.method}({operation.name})" for operation in self._plan.operations]
        if self._last is not None:
            pieces, _, rows = self._last.native.position()
            lines.append(f"last pass: {pieces} of {self._last.native.pieces} pieces, and {rows} rows of the next")
        return "\n".join(lines)

    def iterator(self) -> DataIterator:
        return self

    @property
    def context(self) -> DataContext:
        return DataContext.get_current()

    @staticmethod
    def copy(ds: "Dataset", **_: Any) -> "Dataset":
        """Another one of the same rows: what is open stays with this one."""
        return Dataset(ds._plan)

    def has_serializable_lineage(self) -> bool:
        """Whether it is read from files: the rows of one in memory are no plan that could be sent."""
        plans = [self._plan]
        while plans:
            origin = plans.pop().origin
            if isinstance(origin, Union):
                plans.extend(origin.parts)
            elif isinstance(origin, Subset):
                plans.append(replace(self._plan, origin=origin.origin))
            elif not isinstance(origin, Read):
                return False
        return True

    def serialize_lineage(self) -> bytes:
        """How it is made, for `deserialize_lineage` in another process."""
        from carril._internal.pickling import dumps

        if not self.has_serializable_lineage():
            raise ConfigError(
                "only a data set that is read from files can be serialized: this one is in memory",
                hints=["write it with `write_parquet`, and read it there"],
            )
        return dumps(self)

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> "Dataset":
        from carril._internal.pickling import loads

        made: Dataset = loads(serialized_ds)
        return made

    # Files.

    def write_parquet(self, path: Any, **options: Any) -> None:
        """Parquet files below a directory, or a URI. Nothing is left of a write that fails.

        `partition_cols`, `mode` ("append", "overwrite", "ignore", "error"), `min_rows_per_file`, `max_rows_per_file`,
        `filename_provider`, `filesystem`; of Parquet `compression` ("snappy", "zstd", "gzip", "lz4", "brotli", "none"),
        `compression_level`, `row_group_size`, `use_dictionary`, `write_statistics`.
        """
        _write.write_parquet(self, path, options)

    def write_csv(self, path: Any, **options: Any) -> None:
        """As `write_parquet`, CSV: `include_header`, `delimiter`, `quoting_style`, `compression`."""
        _write.write_csv(self, path, options)

    def write_json(self, path: Any, **options: Any) -> None:
        """As `write_parquet`, JSON: a row in each line, or with `lines=False` an array in each file; `compression`."""
        _write.write_json(self, path, options)

    def write_datasink(self, datasink: "_sink.Datasink", **_: Any) -> None:
        """Into a writer of your own: a class derived from `Datasink`, which is given block by block."""
        _sink.write(self, datasink)

    # Parts.

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> "list[Dataset]":
        """`n` data sets, of equal size or as equal as can be."""
        n = whole(n, 1, f"split({n!r})", "parts")
        cut = self._cut()
        rows = cut.rows // n * n if equal else cut.rows
        return cut.ranges([rows * number // n for number in range(n + 1)])

    def split_at_indices(self, indices: Sequence[int]) -> "list[Dataset]":
        if not indices or list(indices) != sorted(indices) or any(index < 0 for index in indices):
            raise ConfigError("`split_at_indices` wants rising indices that are not negative")
        cut = self._cut()
        return cut.ranges([0, *(min(index, cut.rows) for index in indices), cut.rows])

    def split_proportionately(self, proportions: Sequence[float]) -> "list[Dataset]":
        """A part for each proportion, and one for the rest; none is without rows where there are enough for all."""
        ends = list(itertools.accumulate(proportions))
        if not ends or any(part <= 0 for part in proportions) or ends[-1] >= 1 - _ROUNDING:
            raise ConfigError("`split_proportionately` wants positive parts whose sum is below 1: the rest is the last")
        cut = self._cut()
        bounds = [0, *(int(cut.rows * end + _ROUNDING) for end in ends), cut.rows]
        parts = len(bounds) - 1
        if cut.rows >= parts:
            for number in range(1, parts):
                bounds[number] = max(bounds[number], bounds[number - 1] + 1)
            for number in range(parts - 1, 0, -1):
                bounds[number] = min(bounds[number], bounds[number + 1] - 1)
        return cut.ranges(bounds)

    def train_test_split(
        self, test_size: int | float, *, shuffle: bool = False, seed: int | None = None, stratify: str | None = None
    ) -> "tuple[Dataset, Dataset]":
        """Two data sets; without `shuffle` the last rows are the test set's, with it they are drawn, and both are shuffled.

        By `stratify` each value of a column has its part in both: that is done in memory.
        """
        seed = seed_of(seed)
        if stratify is not None:
            return _parts.stratified(self, stratify, test_size, shuffle, seed)
        cut = self._cut()
        test = _parts.test_rows(test_size, cut.rows)
        if not shuffle:
            train, tested = cut.ranges([0, cut.rows - test, cut.rows])
            return train, tested
        seed = random.getrandbits(63) if seed is None else seed
        train, tested = cut.drawn(test, seed)
        return train.random_shuffle(seed=seed), tested.random_shuffle(seed=seed)

    def streaming_train_test_split(
        self,
        test_size: float,
        *,
        split_type: str = "random",
        hash_column: str | None = None,
        seed: int | None = None,
        **_: Any,
    ) -> "tuple[Dataset, Dataset]":
        """Two data sets that are read as they are used: rows that are drawn and the others, or by a hash of a column.

        With `split_type="hash"` rows of one value are always in the same of the two, and each has about its part. Rows
        that are drawn are held in memory where functions change their number, as those of `train_test_split` are.
        """
        return _parts.streaming(self, test_size, split_type, hash_column, seed_of(seed))

    def _cut(self) -> _parts.Whole:
        if self._to_cut is None:
            self._to_cut = _parts.Whole(self)
        return self._to_cut

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> "list[Shard]":
        """One iterator for each of `n` consumers: each reads its own part, and nobody waits for another.

        Where they are to be `equal`, rows that do not fill one for each are left out, and those of functions that change
        their number are held in memory.
        """
        from carril.data._split import Shard

        n = whole(n, 1, f"streaming_split({n!r})", "parts")
        seed = self._plan.seed if self._plan.seed is not None else random.getrandbits(63)
        dealt = self._counted() if equal else self
        return [Shard(dealt, n, rank, seed, deals_rest=not equal) for rank in range(n)]

    def _counted(self) -> "Dataset":
        """The same rows, of which it is known how many there are."""
        plan = self._plan
        if self._open().is_counted:
            return self
        if plan.limit is not None or plan.shuffle == "none":
            return self.materialize()
        # Each pass has an order of its own also then.
        made = Dataset(replace(plan, shuffle="none")).materialize()
        return Dataset(replace(made._plan, shuffle=plan.shuffle, seed=plan.seed))

    def _whole(self) -> Block:
        blocks = self._held(self._all_blocks())
        return Block.concat(blocks) if blocks else Block.of_columns([], 0)

    # For people.

    def __repr__(self) -> str:
        opened = self._opened
        known = f", num_rows={self.count():,}" if opened is not None and opened.is_counted else ""
        return f"{type(self).__name__}({self._plan.name}{known}{self._types()})"

    def _types(self) -> str:
        if self._opened is None or self._plan.operations:
            return ""
        schema = self.schema()
        return "" if schema is None else f", schema={schema!s}"

    def _repr_html_(self) -> str:
        from html import escape

        names = self.columns()
        rows = self.take(10)
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_short(row[name]))}</td>" for name in names) + "</tr>" for row in rows
        )
        return f"<p>{escape(repr(self))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            raise _missing_method(f"`Dataset.{name}` is not built yet", [METHODS[name]])
        raise AttributeError(f"a data set has no `{name}`")

    def __len__(self) -> int:
        raise TypeError("a data set has no `len()`, which might read all of it: `count()` counts its rows")

    def __bool__(self) -> bool:
        # Whether there is one, as in `if ds:`; whether it has rows would have to be read.
        return True

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a data set cannot be iterated over as it is: `iter_rows()` or `iter_batches()` can")


class MaterializedDataset(Dataset):
    """A data set whose rows are in memory."""


def replace_limit(dataset: Dataset, limit: int) -> Dataset:
    """The same data set, of which only so many rows are wanted, with what it has open."""
    made = Dataset(replace(dataset._plan, limit=limit))
    opened = dataset._open()
    opened.transforms()  # so that its processes are those of both
    made._opened = replace_plan(opened, made._plan)
    return made


def replace_plan(opened: Opened, plan: Plan) -> Opened:
    made = object.__new__(Opened)
    made.__dict__.update(opened.__dict__)
    made.plan = plan
    return made


def _travelling(plan: Plan) -> Plan:
    """The same, with what is made only once made."""
    origin = plan.origin
    if isinstance(origin, Derived):
        return replace(plan, origin=Memory(tuple(origin.make()), origin.name))
    if isinstance(origin, Union):
        return replace(plan, origin=replace(origin, parts=tuple(map(_travelling, origin.parts))))
    if isinstance(origin, Subset):
        inner = _travelling(replace(plan, origin=origin.origin)).origin
        return replace(plan, origin=replace(origin, origin=inner))
    return plan


def _short(value: Any) -> str:
    text = re.sub(r"\s+", " ", str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _names(columns: str | Sequence[str], method: str) -> list[str]:
    names = _texts(columns, method)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"`{method}` was given `{twice}` twice")
    return names


def _texts(columns: str | Sequence[str], method: str) -> list[str]:
    if not isinstance(columns, Iterable):
        raise ConfigTypeError(f"`{method}` wants a name or a list of names, not {type(columns).__name__}")
    names = [columns] if isinstance(columns, str) else list(columns)
    if not all(isinstance(name, str) for name in names):
        raise ConfigTypeError(f"`{method}` wants names, and was given {names!r}")
    return names
