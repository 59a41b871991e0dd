"""From what the user names to files of known format, one head for all of them.

What does not belong here: how a format is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from os.path import commonpath
from pathlib import Path
from typing import Any, NamedTuple, Self

from headway.errors import PlanError
from headway.io.content import Content, opened
from headway.io.csv_file import CsvFile
from headway.io.csv_format import CsvFormat
from headway.io.encoding import checked
from headway.io.location import STANDARD_INPUT, Location, is_pattern, locations, one_format
from headway.io.ranges import RANGE_BYTES, InputFile, Ranges
from headway.io.text_file import TextFile

TAB_SUFFIXES = (".tsv", ".tab")


class Sources(NamedTuple):
    """What a job reads, as the user named it: `name` stays the same when files are added."""

    locations: tuple[Location, ...]
    format: str
    name: str
    alone: bool
    """one source that is no pattern"""

    @classmethod
    def parse(cls, given: str | PathLike[str] | Sequence[str | PathLike[str]], format: str | None = None) -> Self:
        """Read paths, patterns, addresses and ``-``. Raises PlanError."""
        texts = [fspath(given)] if isinstance(given, (str, PathLike)) else [fspath(source) for source in given]
        found = locations(texts)
        alone = len(texts) == 1 and not is_pattern(texts[0])
        if alone:
            name = found[0].name
        elif len(texts) == 1:
            name = str(Path.cwd() / texts[0])
        elif all(location.is_file for location in found):
            name = commonpath([Path(location.address).parent for location in found])
        else:
            name = found[0].name
        return cls(tuple(found), one_format(format, found), name, alone)

    def table_name(self) -> str:
        """Give the name of a table that the user did not name. Raises PlanError where there is none."""
        file = self.locations[0].file_name
        if not self.alone or not file:
            what = f"{self} has no name" if self.alone else "there are several sources"
            raise PlanError(f"{what}: say with --table which table is meant")
        return file.split(".", 1)[0] or file

    def __str__(self) -> str:
        first = self.locations[0]
        if len(self.locations) > 1:
            return f"{len(self.locations)} files in {self.name}"
        return "standard input" if first.address == STANDARD_INPUT else first.file_name or first.name


@dataclass(frozen=True)
class InputFormat:
    """How all files of a job are read. `encoding`: None to go by each file's byte order mark.

    Raises PlanError for what means nothing in the format.
    """

    kind: str = "csv"
    delimiter: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    encoding: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        if self.kind == "csv":
            self.csv(",")
        elif (self.delimiter, self.quote, self.escape, self.header) != (None, '"', None, True):
            raise PlanError(f"--delimiter, --quote, --escape and --no-header mean nothing in {self.kind}")
        elif self.kind == "parquet" and self.encoding is not None:
            raise PlanError("--encoding means nothing in parquet")
        elif self.encoding is not None:
            checked(self.encoding)

    def csv(self, delimiter: str) -> CsvFormat:
        """Give the CSV format; `delimiter` where none was given."""
        return CsvFormat(self.delimiter or delimiter, self.quote, self.escape, self.encoding or "utf-8")

    def told(self, first: InputFile) -> dict[str, Any]:
        """Give the options with what they mean for the first file."""
        told: dict[str, Any] = {"--format": self.kind}
        if isinstance(first, TextFile):
            told["--encoding"] = first.text.name
        if isinstance(first, CsvFile):
            told |= {
                "--delimiter": first.format.delimiter,
                "--quote": first.format.quote,
                "--escape": first.format.escape,
                "--no-header": not self.header,
            }
        return told

    def look(self, location: Location, content: Content) -> InputFile:
        """Look at one file."""
        if self.kind == "jsonl":
            from headway.io.jsonl_file import JsonlFile

            return JsonlFile.look(location, content, encoding=self.encoding)
        format = self.csv("\t" if location.suffix in TAB_SUFFIXES else ",")
        return CsvFile.look(location, content, format, encoding=self.encoding, header=self.header)


def open_ranges(sources: Sequence[Location], format: InputFormat, *, range_bytes: int = RANGE_BYTES) -> Ranges:
    """Look at every file, and give the source of their ranges.

    Raises PlanError where one cannot be read, or has other columns than the first.
    """
    files: list[InputFile] = []
    contents: dict[int, Content] = {}
    try:
        for number, location in enumerate(sources):
            if format.kind == "parquet":
                from headway.io.parquet_file import ParquetFile

                files.append(ParquetFile.look(location))
                continue
            contents[number] = opened(location)
            files.append(format.look(location, contents[number]))
            if number and location.address != STANDARD_INPUT:  # the first is read at once; this one cannot be reopened
                contents.pop(number).close()
        return Ranges(_under_one_head(files, format.kind), contents, range_bytes=range_bytes)
    except BaseException:
        for content in contents.values():
            content.close()
        raise


def _under_one_head(files: Sequence[InputFile], kind: str) -> list[InputFile]:
    """Check that all files have the columns of the first that has any; of JSON lines, give each the columns of all."""
    first = next((file for file in files if file.head.width), files[0]).head
    if kind == "jsonl":
        columns = tuple(dict.fromkeys(name for file in files for name in file.head.names or ()))
        return [file.with_head(file.head._replace(names=columns, width=len(columns))) for file in files]
    for file in files:
        if file.head.width and file.head.names != first.names:
            listed = [", ".join(head.names or ()) for head in (file.head, first)]
            raise PlanError(
                f"{file.location.name} has the columns {listed[0]}, where files before it have {listed[1]}; "
                "the files of a job must have the same columns in the same order"
            )
    return [file.with_head(file.head._replace(names=first.names, width=first.width)) for file in files]
