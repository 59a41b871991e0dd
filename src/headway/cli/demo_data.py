"""The demo's file: bookings of a small bank, and what a right import of it must end with.

Entry numbers rise by one. An account's name ends in a check digit. `balance` is the account's
balance behind the booking, so a row that is lost, doubled or taken out of order shows. A few rows
in a thousand are faulty in one of seven ways, and no faulty row changes a balance. Same rows, same
seed: same bytes. What does not belong here: importing and checking.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

HEADER = "entry,account,booked,amount,balance,note\n"
FAULTS = (
    "too_few_fields",
    "too_many_fields",
    "bad_encoding",
    "not_an_amount",
    "not_a_time",
    "wrong_check_digit",
    "duplicate_key",
)
FAULTY_SHARE = 0.002
NOTES = (
    "coffee", "train ticket", "salary", "rent", "bookshop, second floor", 'say ""hello""', "two\nlines", "kiosk Ångström",
    "注文 17", "refund; see letter", "tab\there", "gym", "water & power", "a,b\r\nc", "cash", "gift for Zoë",
)  # fmt: skip
ROWS_A_PIECE = 4096


class Fault(NamedTuple):
    """A row that has to be set aside: its number from 0, physical line, byte offset, and why."""

    seq: int
    line: int
    byte: int
    reason: str


@dataclass
class Answers:
    """What the right end state is."""

    rows: int = 0
    bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    balances: dict[str, tuple[int, int]] = field(default_factory=dict)
    """account -> balance in cents, and number of bookings"""
    ledger: str = ""
    """SHA-256 over the good bookings in file order, each as `line_of_ledger`"""

    @property
    def good(self) -> int:
        """Number of rows that have to arrive."""
        return self.rows - len(self.faults)


def write_bookings(path: Path, rows: int, seed: int = 7) -> Iterator[Answers]:
    """Write the file piece by piece and give the answers so far behind each piece; the last ones are final."""
    maker = _Maker(rows, seed)
    with path.open("wb") as file:
        file.write(HEADER.encode())
        while maker.answers.rows < rows:
            file.write(maker.piece(min(ROWS_A_PIECE, rows - maker.answers.rows)))
            yield maker.finished()
    if not rows:
        yield maker.finished()


def line_of_ledger(entry: int, account: str, booked: str, amount: str, balance: str, note: str) -> bytes:
    """Give the text of a booking over which the ledger's hash goes."""
    return f"{entry}|{account}|{booked}|{amount}|{balance}|{note}\n".encode()


def account_name(number: int) -> str:
    """Give an account's name: five digits and their check digit."""
    return f"{number:05d}-{check_digit(number)}"


def check_digit(number: int) -> int:
    """Give the digit sum, modulo 9."""
    return number % 9


def money(cents: int) -> str:
    """Give an amount as text with two decimals."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"


class _Maker:
    def __init__(self, rows: int, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a sample file is no secret
        self._accounts = [account_name(number) for number in range(min(50_000, 10 + rows // 20))]
        self._cents = dict.fromkeys(self._accounts, 0)
        self._bookings = dict.fromkeys(self._accounts, 0)
        self._hash = hashlib.sha256()
        self._line, self._clock = 2, datetime(2025, 3, 1, 6)  # noqa: DTZ001 - the file has local times
        self._earlier: list[int] = []
        self.answers = Answers(bytes=len(HEADER))

    def piece(self, rows: int) -> bytes:
        data = bytearray()
        for _ in range(rows):
            row = self._row(self.answers.bytes + len(data))
            self._line += row.count(b"\n")
            data += row
            self.answers.rows += 1
        self.answers.bytes += len(data)
        return bytes(data)

    def finished(self) -> Answers:
        self.answers.ledger = self._hash.hexdigest()
        counts = self._bookings
        self.answers.balances = {name: (self._cents[name], count) for name, count in counts.items() if count}
        return self.answers

    def _row(self, byte: int) -> bytes:
        chance = self._random.random
        entry = self.answers.rows + 1
        account = self._accounts[int(len(self._accounts) * chance() ** 3)]
        amount = int((chance() - 0.45) * 100_000)
        self._clock += timedelta(seconds=int(chance() * 9))
        booked = self._clock.isoformat()
        note = NOTES[int(chance() * len(NOTES))]
        if chance() < FAULTY_SHARE:
            return self._faulty_row(byte, entry, account, booked, amount, note)
        balance = self._cents[account] + amount
        self._cents[account] = balance
        self._bookings[account] += 1
        if entry % 97 == 1:
            self._earlier.append(entry)
        note = f"{note} no. {entry}"
        self._hash.update(
            line_of_ledger(entry, account, booked, money(amount), money(balance), note.replace('""', '"'))
        )
        return f"{entry},{account},{booked},{money(amount)},{money(balance)},{_field(note)}\n".encode()

    def _faulty_row(self, byte: int, entry: int, account: str, booked: str, amount: int, note: str) -> bytes:
        reason = FAULTS[int(self._random.random() * len(FAULTS))]
        if reason == "duplicate_key" and not self._earlier:
            reason = "not_an_amount"
        self.answers.faults.append(Fault(self.answers.rows, self._line, byte, reason))
        text = money(amount)
        if reason == "not_an_amount":
            text = self._random.choice(("", "ten", "1.2.3", "NaN", "12 EUR"))
        elif reason == "not_a_time":
            booked = self._random.choice(("", "2025-02-30T08:00:00", "noon", "01/03/2025"))
        elif reason == "wrong_check_digit":
            account = account[:-1] + str((int(account[-1]) + 1) % 10)
        elif reason == "duplicate_key":
            entry = self._random.choice(self._earlier)
        start = f"{entry},{account},{booked},{text},{money(amount)}"
        if reason == "too_few_fields":
            return f"{start}\n".encode()
        if reason == "bad_encoding":
            return f"{start},".encode() + b"na\xefve \x80\n"
        return f"{start},{_field(note)}{',more' * (reason == 'too_many_fields')}\n".encode()


def _field(note: str) -> str:
    return f'"{note}"' if any(char in note for char in ',"\n\r') else note
