"""What becomes of blocks by functions of the user's: runs in processes of their own.

A stage is a row of operations that one process carries out on a block, one after the other.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril._internal.failure import describe
from carril._native import Block
from carril.data import _convert
from carril.data._numbers import whole
from carril.exceptions import CarrilError, ConfigError, ConfigTypeError, of_another_ray

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


@dataclass(frozen=True)
class Operation:
    """One step. `function` may be a class, of which each process makes one."""

    kind: str  # "map", "map_batches", "flat_map", "filter", "add_column"
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    constructor: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {})
    batch_size: int | None = None
    batch_format: str | None = "default"
    column: str = ""
    concurrency: int | None = None
    # What the user called and gave, where a function of ours stands for it: `("read_datasource", "MySource")`.
    stands_for: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        if self.stands_for is not None:
            return self.stands_for[1]
        return getattr(self.function, "__name__", None) or type(self.function).__name__

    @property
    def method(self) -> str:
        return self.kind if self.stands_for is None else self.stands_for[0]

    @property
    def keeps_rows(self) -> bool:
        return self.kind in ("map", "add_column")


# What Ray gives a function, and has no meaning where functions run in processes beside the reader.
_WITHOUT_EFFECT = {"num_cpus", "num_gpus", "memory", "ray_remote_args", "ray_remote_args_fn", "max_task_retries"}


def operation(kind: str, function: Any, options: Mapping[str, Any], **more: Any) -> Operation:
    """A step as the user asks for it: `options` are those that every such method has."""
    if not callable(function):
        raise ConfigTypeError(f"`{kind}` wants a function or a class, not {type(function).__name__}")
    left = dict(options)
    constructor = (
        tuple(left.pop("fn_constructor_args", None) or ()),
        dict(left.pop("fn_constructor_kwargs", None) or {}),
    )
    arguments = tuple(left.pop("fn_args", None) or ())
    keywords = dict(left.pop("fn_kwargs", None) or {})
    _check_constructor(kind, function, constructor)
    processes = _processes(kind, function, left.pop("concurrency", None), left.pop("compute", None))
    unknown = sorted(set(left) - _WITHOUT_EFFECT)
    if unknown:
        raise ConfigTypeError(
            f"`{kind}` has no option `{unknown[0]}`", hints=of_another_ray(f"Dataset.{kind}", unknown[0])
        )
    return Operation(kind, function, arguments, keywords, constructor, concurrency=processes, **more)


def _check_constructor(kind: str, function: Any, constructor: tuple[tuple[Any, ...], Mapping[str, Any]]) -> None:
    if any(constructor) and not inspect.isclass(function):
        raise ConfigError(
            f"`{kind}` was given `fn_constructor_args` or `fn_constructor_kwargs`, and `fn` is no class",
            hints=["arguments of a function are `fn_args` and `fn_kwargs`"],
        )


def _processes(kind: str, function: Any, concurrency: Any, compute: Any) -> int | None:
    if concurrency is None and compute is not None:
        concurrency = (
            getattr(compute, "size", None) or getattr(compute, "max_size", None) or getattr(compute, "min_size", None)
        )
    elif isinstance(concurrency, tuple):
        concurrency = _most(kind, function, concurrency)
    if concurrency is None:
        return None
    return whole(concurrency, 1, f"concurrency={concurrency!r}", "processes")


def _most(kind: str, function: Any, concurrency: tuple[Any, ...]) -> int:
    """Of at least so many processes and at most so many, which is for classes."""
    if not inspect.isclass(function):
        raise ConfigError(
            f"`{kind}` was given `concurrency={concurrency!r}`, and `fn` is no class",
            hints=["a function has at most so many processes: `concurrency=4`"],
        )
    told = f"concurrency={concurrency!r}"
    if len(concurrency) not in (2, 3):
        raise ConfigError(f"`{told}`: ``concurrency`` is a number of processes, or the least and the most of them")
    least, most, *_ = (whole(one, 1, told, "processes") for one in concurrency)
    if least > most:
        raise ConfigError(f"`{told}`: the least number of processes is above the most")
    return most


class Failed(Exception):
    """What a function did wrong, in a sentence."""

    def __init__(self, message: str, *hints: str) -> None:
        super().__init__(message)
        self.hints = hints


class Stage:
    """Operations, ready to run in this process."""

    def __init__(self, operations: list[Operation]) -> None:
        self._steps = [_Step(operation) for operation in operations]

    def __call__(self, block: Block) -> list[Block]:
        # A dictionary would silently have one of two columns of the same name.
        _convert.check_names(block.names)
        blocks = [block]
        for step in self._steps:
            if len(blocks) > 1 and step.joins:
                blocks = [Block.concat(blocks)]
            blocks = [made for one in blocks for made in step(one)]
        return blocks


# Rows that an async function has in its hands at once.
_AT_ONCE = 64


def _is_awaited(function: Any) -> bool:
    """Whether it is an async function, or an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class _Step:
    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        function: Any = operation.function
        self._row = -1
        self._loop: AbstractEventLoop | None = None
        if inspect.isclass(function):
            function = self._constructed(function)
        self._function = function

    @property
    def joins(self) -> bool:
        """Whether it wants so many rows together that it gets the blocks of the step before it as one."""
        return self._operation.batch_size is not None

    def _constructed(self, kind: type) -> Any:
        operation = self._operation
        positional, keywords = operation.constructor
        try:
            return kind(*positional, **keywords)
        except (Exception, SystemExit) as error:
            location = describe(error).location
            where = f" at {location}" if location else ""
            # No line of the class has run: it is the call that does not fit.
            hints = () if location else ("its arguments are `fn_constructor_args` and `fn_constructor_kwargs`",)
            told = f"`{operation.name}` in `{operation.method}` cannot be made{where}: {type(error).__name__}: {error}"
            raise Failed(told, *hints) from error

    def __call__(self, block: Block) -> list[Block]:
        carry_out = getattr(self, f"_{self._operation.kind}")
        self._row = -1
        try:
            made: list[Block] = carry_out(block)
        except (Exception, SystemExit) as error:
            raise Failed(self._told(error)) from error
        return made

    def _call(self, argument: Any) -> Any:
        made = self._start(argument)
        if inspect.isasyncgen(made):
            return self._yielded(made)
        return self._run(made) if inspect.isawaitable(made) else made

    def _start(self, argument: Any) -> Any:
        return self._function(argument, *self._operation.arguments, **self._operation.keywords)

    def _run(self, awaited: Any) -> Any:
        """In a loop that lives as long as the function: what it keeps open stays usable."""
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(awaited)

    def _yielded(self, batches: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._run(anext(batches))
            except StopAsyncIteration:
                return

    def _rows(self, block: Block) -> Iterator[tuple[dict[str, Any], Any]]:
        rows = _convert.to_rows(block)
        if not _is_awaited(self._function):
            for self._row, row in enumerate(rows):
                yield row, self._call(dict(row))
            return
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            yield from zip(some, self._run(self._together(some)), strict=True)

    async def _together(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Rows that wait for something wait together."""
        import asyncio

        return await asyncio.gather(*(self._start(dict(row)) for row in rows))

    def _map(self, block: Block) -> list[Block]:
        made = []
        for _, row in self._rows(block):
            if not isinstance(row, Mapping):
                raise ValueError(f"a row is a dictionary, and {type(row).__name__} was returned")
            made.append(row)
        self._row = -1
        return [_convert.of_rows(made)]

    def _flat_map(self, block: Block) -> list[Block]:
        made: list[Mapping[str, Any]] = []
        for _, rows in self._rows(block):
            if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
                raise ValueError(f"`flat_map` wants a list of rows, and {type(rows).__name__} was returned")
            for row in rows:
                if not isinstance(row, Mapping):
                    raise ValueError(f"`flat_map` wants a list of rows, which are dictionaries, and {row!r} is none")
                made.append(row)
        self._row = -1
        return [_convert.of_rows(made)] if made else []

    def _filter(self, block: Block) -> list[Block]:
        places = [number for number, (_, keeps) in enumerate(self._rows(block)) if keeps]
        return [block.take(places)] if places else []

    def _add_column(self, block: Block) -> list[Block]:
        """The columns that are there stay what they are: only the new one is made of what the function returns."""
        name, batch_format = self._operation.column, self._operation.batch_format
        given = self._call(_convert.to_format(block, batch_format))
        added = _convert.of_one(name, given, len(block), is_aligned=batch_format == "pandas")
        others = block.project([(one, one) for one in block.names if one != name])
        order = block.names if name in block.names else [*block.names, name]
        return [others.beside(added).project([(one, one) for one in order])]

    def _map_batches(self, block: Block) -> list[Block]:
        size = self._operation.batch_size or max(len(block), 1)
        made: list[Block] = []
        for begin in range(0, len(block), size):
            part = block if size >= len(block) else block.slice(begin, min(size, len(block) - begin))
            given = _convert.to_format(part, self._operation.batch_format)
            answer = self._call(given)
            answers = answer if isinstance(answer, Iterator) else [answer]
            for one in answers:
                made.extend(_convert.of_batch(one))
        return made

    def _told(self, error: BaseException) -> str:
        operation, report = self._operation, describe(error)
        row = f" in row {self._row} of its block" if self._row >= 0 else ""
        where = f" at {report.location}" if report.location else ""
        what = error.message if isinstance(error, CarrilError) else report.message
        return f"`{operation.name}` in `{operation.method}` failed{row}{where}: {type(error).__name__}: {what}"


def told(error: BaseException) -> bytes:
    """For the other side."""
    cause = error.__cause__ if isinstance(error, Failed) and error.__cause__ is not None else error
    hints = list(error.hints) if isinstance(error, Failed) else []
    if isinstance(cause, CarrilError):
        hints += cause.hints
    if isinstance(error, CarrilError):
        message = error.message
    else:
        message = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    calls = describe(cause).traceback.partition("\n")[2][-4000:].rstrip()
    if calls:
        hints.append(f"the calls that led there:\n{calls}")
    return json.dumps({"message": message, "hints": hints, "pickle": _pickled(cause)}).encode()


def _pickled(error: BaseException) -> str | None:
    """In hexadecimal digits; nothing where it cannot be pickled, or is none of the user's to catch."""
    if not isinstance(error, Exception) or isinstance(error, CarrilError):
        return None
    from carril._internal.pickling import dumps

    try:
        return dumps(error.with_traceback(None)).hex()
    except Exception:
        return None
