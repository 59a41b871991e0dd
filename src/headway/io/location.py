"""Where input comes from: files, patterns, addresses and standard input, as the user writes them.

What does not belong here: opening (`content`), what the input holds.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from headway.errors import PlanError

STANDARD_INPUT = "-"
PACKED_SUFFIXES = (".gz", ".bgz", ".bz2", ".xz", ".lzma", ".zst", ".zstd")
_FORMATS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".jsonlines": "jsonl", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
FORMATS = ("csv", "jsonl", "parquet")


class Location(NamedTuple):
    """One input: an absolute path, an address with a scheme, or ``-``."""

    address: str

    @property
    def is_file(self) -> bool:
        """Whether it is a file of this machine."""
        return self.address != STANDARD_INPUT and "://" not in self.address

    @property
    def name(self) -> str:
        """How it is called in messages and in the target: without a user's name and password."""
        if "@" not in self.address or self.is_file:
            return self.address
        parts = urlsplit(self.address)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def file_name(self) -> str:
        """The last part of the path; empty for standard input."""
        if self.address == STANDARD_INPUT:
            return ""
        return Path(self.address if self.is_file else unquote(urlsplit(self.address).path)).name

    @property
    def suffix(self) -> str:
        """The ending of the name, in lower case, without that of a compression."""
        path = Path(self.file_name.lower())
        return Path(path.stem).suffix if path.suffix in PACKED_SUFFIXES else path.suffix

    @property
    def format(self) -> str:
        """The format that the name tells; CSV if it tells none."""
        return _FORMATS.get(self.suffix, "csv")


def locations(sources: Sequence[str | os.PathLike[str]]) -> list[Location]:
    """Read what the user wrote: the sources in their order, the matches of a pattern sorted by path.

    Raises PlanError if a pattern matches nothing, or one input is named twice.
    """
    found: list[Location] = []
    for source in sources:
        found += _located(os.fspath(source))
    if not found:
        raise PlanError("no source is named")
    for location in found:
        if found.count(location) > 1:
            raise PlanError(f"{location.name} is named twice")
    return found


def is_pattern(text: str) -> bool:
    """Whether a source stands for all files that match it."""
    return "://" not in text and glob.has_magic(text) and not os.path.lexists(text)


def _located(text: str) -> list[Location]:
    if text == STANDARD_INPUT:
        return [Location(text)]
    if "://" in text:
        scheme, _, rest = text.partition("://")
        return _located(unquote(rest)) if scheme == "file" else [Location(text)]
    if is_pattern(text):
        matches = sorted(path for path in glob.iglob(text, recursive=True) if not Path(path).is_dir())  # noqa: PTH207 - of any root
        if not matches:
            raise PlanError(f"{text}: no file matches")
        return [Location(str(Path(path).resolve())) for path in matches]
    return [Location(str(Path(text).resolve()))]


def one_format(given: str | None, sources: Sequence[Location]) -> str:
    """Give the format of a job's sources: as given, or as their names tell. Raises PlanError."""
    if given is not None:
        if given not in FORMATS:
            raise PlanError(f"--format {given} is not known; there are {', '.join(FORMATS)}")
        return given
    first = sources[0]
    for source in sources:
        if source.format != first.format:
            raise PlanError(
                f"{first.name} is {first.format} and {source.name} is {source.format} by name; "
                "import one format at a time, or say with --format what all of them are"
            )
    return first.format


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, by whatever links; it need not be there."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
