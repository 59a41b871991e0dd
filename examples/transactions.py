"""A row function for account transactions: checks every field, looks the account up, writes two tables.

    headway import transactions.csv --to bank.duckdb --tables examples/transactions.toml \
        --process examples/transactions.py:post --rejects rejects.jsonl

The look-up is read from the file that the environment variable CUSTOMERS names.
"""

from __future__ import annotations

import csv
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from headway import Reject, rows

NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
CURRENCIES = {"EUR", "USD", "GBP", "CHF", "SEK", "PLN", "JPY"}


def setup() -> set[str]:
    """Read the known accounts, once in each worker; every call of `post` gets them as its second argument."""
    with Path(os.environ["CUSTOMERS"]).open(encoding="utf-8", newline="") as file:
        return {row["account"] for row in csv.DictReader(file)}


def post(row: Any, accounts: set[str]) -> Any:
    """Check a transaction and write it to the ledger, and its balance as the account's latest."""
    if not row.id:
        raise Reject("missing_id")
    if not NUMBER.fullmatch(row.amount):
        raise Reject("bad_number", f"amount {row.amount!r}")
    if not is_instant(row.ts):
        raise Reject("bad_date", f"ts {row.ts!r}")
    if row.currency not in CURRENCIES:
        raise Reject("bad_currency", f"currency {row.currency!r}")
    if row.account not in accounts:
        raise Reject("unknown_account", row.account)
    return rows(
        ledger=(row.id, row.account, row.ts, row.amount, row.currency, row.balance, row.description),
        balances={"account": row.account, "balance": row.balance, "ts": row.ts},
    )


def is_instant(text: str) -> bool:
    """Whether a text is a real UTC instant in the form YYYY-MM-DDThh:mm:ssZ."""
    try:
        return bool(INSTANT.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False
