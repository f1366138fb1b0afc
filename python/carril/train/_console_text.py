"""The words of the console: counts, times, values, the table of a report, and text cut to the columns of a terminal.

Nothing here knows where it is shown.
"""

from typing import Any

from carril.train._result import AUTOMATIC_FIELDS, flatten

_RANKS_IN_THE_TABLE = 4
_LONGEST_VALUE = 40
_METRICS_SHOWN = 8


def count(number: int, thing: str) -> str:
    """`1 report`, `1,200 reports`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def kept(checkpoints: int, saved: int) -> str:
    """`3 checkpoints`, or `2 of 12 checkpoints kept`."""
    return f"{checkpoints:,} of {saved:,} checkpoints kept" if saved > checkpoints else count(checkpoints, "checkpoint")


def clock(seconds: float) -> str:
    """`0:07`, `1:02:03`: of a width that changes as rarely as possible."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def span(seconds: float) -> str:
    """How long something takes: `12 ms`, `0.8 s`, `2:03`."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else clock(seconds)


def size(count: float) -> str:
    """Bytes: `12.3 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def usage(used: dict[str, Any]) -> str:
    """`3.1 CPUs · 1.2 GB`, and the devices where there are some."""
    facts = [f"{used['cpus']:.1f} CPUs", size(used["memory"])]
    if used["gpus"]:
        facts.append(f"{count(used['gpus'], 'GPU')} at {used['gpu_percent']:.0f} %, {size(used['gpu_memory'])}")
    return " · ".join(facts)


def behind(ranks: list[int], reports: int) -> str:
    """`rank 3 is 2 reports behind`"""
    if len(ranks) == 1:
        return f"rank {ranks[0]} is {count(reports, 'report')} behind"
    return f"ranks {', '.join(map(str, ranks))} are up to {count(reports, 'report')} behind"


def rate(per_second: float) -> str:
    """How often, in the unit in which it is a readable number."""
    if per_second < 0.095:
        return f"{per_second * 60:.1f}/min"
    return f"{per_second:,.0f}/s" if per_second >= 9.95 else f"{per_second:.1f}/s"


def value(given: Any) -> str:
    """A metric in a line: floats with four digits, other text not longer than fits."""
    if isinstance(given, float):
        return f"{given:.4g}"
    return clip(one_line(str(given)), _LONGEST_VALUE)


def one_line(text: str) -> str:
    """The text without line ends, and without what a terminal would take as a command."""
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


def users(metrics: dict[str, Any]) -> dict[str, Any]:
    """What the user reported, flat, without the automatic fields."""
    flat = flatten(metrics)
    return {one_line(name): flat[name] for name in flat if name.partition("/")[0] not in AUTOMATIC_FIELDS}


def metrics_in_a_line(metrics: dict[str, Any]) -> list[str]:
    return [f"{name} {value(given)}" for name, given in users(metrics).items()]


def metrics_shown(metrics: dict[str, Any] | None) -> str:
    """What the user reported, short, as a dictionary; the first few where there are many."""
    if metrics is None:
        return "None"
    own = users(metrics)
    shown = [f"{name!r}: {value(given) if isinstance(given, float) else clipped(given)}" for name, given in own.items()]
    more = [f"… {len(shown) - _METRICS_SHOWN} more"] if len(shown) > _METRICS_SHOWN else []
    return "{" + ", ".join([*shown[:_METRICS_SHOWN], *more]) + "}"


def clipped(given: Any) -> str:
    """What a value looks like in Python, in one line, not longer than fits."""
    return clip(one_line(repr(given)), _LONGEST_VALUE)


def columns_of(metrics: dict[str, Any], ranks: dict[int, dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """The last report as columns: the names, the run's values, and each rank's where there are several."""
    own = users(metrics)
    if not own:
        return []
    columns = [("", list(own)), ("run", [value(given) for given in own.values()])]
    if len(ranks) > 1:
        for rank in sorted(ranks)[:_RANKS_IN_THE_TABLE]:
            flat = users(ranks[rank])
            columns.append((f"rank {rank}", [value(flat[name]) if name in flat else "" for name in own]))
        if len(ranks) > _RANKS_IN_THE_TABLE:
            columns.append((f"… {len(ranks)} ranks", ["" for _ in own]))
    return columns


def table(metrics: dict[str, Any], ranks: dict[int, dict[str, Any]]) -> list[str]:
    """The last report as lines."""
    columns = columns_of(metrics, ranks)
    if not columns:
        return []
    padded = []
    for at, (title, cells) in enumerate(columns):
        across = max(width(cell) for cell in (title, *cells))
        padded.append([_pad(cell, across, to_the_right=at > 0) for cell in (title, *cells)])
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def _pad(text: str, across: int, to_the_right: bool) -> str:
    space = " " * (across - width(text))
    return space + text if to_the_right else text + space


def width(text: str) -> int:
    """The columns of a terminal that a text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    import unicodedata

    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """The text, or its beginning with an ellipsis, in at most so many columns."""
    if width(text) <= columns:
        return text
    kept, room = [], columns - 1
    for character in text:
        room -= _width(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…" if columns > 0 else ""
