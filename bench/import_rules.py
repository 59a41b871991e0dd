"""The row function of `import_job`: validation, a look-up, an exchange rate and a fingerprint, about 5.5 µs a row."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from headway import Reject, rows

ACCOUNT = re.compile(r"[0-9]{5}-[0-9]", re.ASCII)
AMOUNT = re.compile(r"-?[0-9]+\.[0-9]{2}", re.ASCII)
ENTRY = re.compile(r"[1-9][0-9]*", re.ASCII)
FEE = re.compile(r"fee|charge|interest", re.IGNORECASE)
RATES = tuple(Decimal(f"1.00{day}") for day in range(7))
CENT = Decimal("0.01")
LARGEST = Decimal(1_000_000)

COLUMNS = {
    "entry": "int",
    "account": "text",
    "booked": "timestamp",
    "amount": "decimal(18,2)",
    "balance": "decimal(18,2)",
    "note": "text",
    "country": "text",
    "amount_eur": "decimal(18,2)",
    "fingerprint": "text",
}
TABLES = {
    "tables": {
        "ledger": {"columns": COLUMNS, "key": ["entry"]},
        "balances": {
            "columns": {"account": "text", "balance": "decimal(18,2)", "entry": "int"},
            "key": ["account"],
            "mode": "upsert",
        },
    }
}


def setup() -> dict[str, tuple[str, Decimal]]:
    """Make the look-up: account -> country and rate to the euro."""
    countries = (("DE", Decimal(1)), ("GB", Decimal("1.17")), ("SE", Decimal("0.087")), ("US", Decimal("0.92")))
    return {f"{number:05d}-{number % 9}": countries[number % 4] for number in range(50_000)}


def enrich(row: Any, customers: dict[str, tuple[str, Decimal]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Give the ledger row and the balance row. Raises Reject."""
    entry, account, booked, amount, balance, note = row
    if not ENTRY.fullmatch(entry) or not AMOUNT.fullmatch(amount):
        raise Reject("not_an_amount", amount)
    customer = customers.get(account)
    if customer is None or not ACCOUNT.fullmatch(account):
        raise Reject("wrong_check_digit", account)
    try:
        day = datetime.fromisoformat(booked)
    except ValueError:
        raise Reject("not_a_time", booked) from None
    value = Decimal(amount)
    if abs(value) > LARGEST or abs(Decimal(balance)) > LARGEST * LARGEST:
        raise Reject("too_large", amount)
    country, rate = customer
    in_euro = (value * rate * RATES[day.weekday()]).quantize(CENT)
    kind = "fee" if FEE.search(note) else "in" if value > 0 else "out"
    text = f"{entry}|{account}|{booked}|{value.normalize()}|{in_euro}|{country}|{kind}|{note}"
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    ledger = (int(entry), account, booked, amount, balance, note, country, str(in_euro), fingerprint)
    return ledger, (account, balance, ledger[0])


def book(row: Any, customers: dict[str, tuple[str, Decimal]]) -> Any:
    """The row function for the import."""
    ledger, balance = enrich(row, customers)
    return rows(ledger=ledger, balances=balance)
