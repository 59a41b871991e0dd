"""Errors and values as text, whatever their own methods raise. Formats nothing else."""

from __future__ import annotations


def message(error: BaseException) -> str:
    """The text of an error, or "(no text)" where it cannot be asked."""
    try:
        return str(error)
    except Exception:  # a user's class may raise anything here
        return "(no text)"


def told(error: BaseException) -> str:
    """``Type: message``."""
    return f"{type(error).__name__}: {message(error)}"


def shown(value: object, limit: int | None = 200) -> str:
    """The `repr` of a value, cut after `limit` characters; its type where it has none."""
    try:
        text = repr(value)
    except Exception:  # the same, and a very long integer
        text = f"<{type(value).__name__}>"
    return text if limit is None or len(text) <= limit else text[:limit] + "..."


def printable(text: str) -> str:
    """The text with whatever a terminal would obey, or cannot show, written as an escape."""
    return text if text.isprintable() else repr(text)[1:-1].encode("utf-8", "backslashreplace").decode()
