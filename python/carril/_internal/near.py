"""Which of the names that there are somebody may have meant."""

from collections.abc import Iterable


def near(name: object, known: Iterable[str]) -> str | None:
    """The name that is most like this one; None where none is."""
    import difflib

    close = difflib.get_close_matches(str(name), list(known), n=1)
    return close[0] if close else None


def listed(names: Iterable[object], most: int = 12) -> str:
    """`a`, `b` and so many more."""
    shown = [f"`{name}`" for name in names]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")
