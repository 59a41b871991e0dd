"""How a CSV file is written: delimiter, quote, escape and encoding.

Fields follow RFC 4180 as Python's `csv` reads it when not strict: a quote inside an unquoted field
is kept, text behind a closing quote is appended. What does not belong here: where a file is cut
(`csv_ranges`), what a row means (the importer).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headway.errors import PlanError
from headway.io.encoding import Encoding, checked, encoding_of

SENTINEL = "end"
"""A line put behind the text: it comes back as a record of its own if the last record is closed."""

LONGEST_FIELD = 2**31 - 1  # what every C long can hold


@dataclass(frozen=True)
class CsvFormat:
    """Delimiter, quote, escape and encoding of a file. With an escape, a doubled quote is no quote.

    Raises PlanError for what cannot be told apart, or stands for nothing in the encoding.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", checked(self.encoding))
        if self.escape == self.quote:  # as others say that a quote is doubled
            object.__setattr__(self, "escape", None)
        for name in ("delimiter", "quote", "escape"):
            self._check(name, getattr(self, name))

    def _check(self, name: str, given: str | None) -> None:
        if given is None and name != "delimiter":
            return
        others = [getattr(self, other) for other in ("delimiter", "quote", "escape") if other != name]
        if given is None or len(given) != 1 or given in ("\r", "\n", *others):
            raise PlanError(f"{name} {given!r}: give one character that is no line break and stands for nothing else")
        try:
            given.encode(self.encoding)
        except UnicodeEncodeError:
            raise PlanError(f"{name} {given!r}: encoding {self.encoding} does not have it") from None

    @cached_property
    def text(self) -> Encoding:
        """The encoding itself."""
        return encoding_of(self.encoding)

    @cached_property
    def plain(self) -> bool:
        """Whether quotes and delimiters can be found in the bytes."""
        return self.escape is None and self.text.plain(self.delimiter + (self.quote or ""))

    def reader(self, lines: Iterable[str]) -> Any:
        """Give Python's CSV reader over `lines`, without a limit on the size of a field."""
        csv.field_size_limit(LONGEST_FIELD)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            doublequote=self.escape is None,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
        )
