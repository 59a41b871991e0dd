"""The demo's row function. What does not belong here: anything that the workers need not import."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from headway.importer.rowfunction import Reject, Rows, rows

TABLES = {
    "tables": {
        "ledger": {
            "columns": {
                "entry": "int",
                "account": "text",
                "booked": "timestamp",
                "amount": "decimal(18,2)",
                "balance": "decimal(18,2)",
                "note": "text",
            },
            "key": ["entry"],
            "mode": "fail",
        },
        "balances": {
            "columns": {"account": "text", "balance": "decimal(18,2)", "entry": "int"},
            "key": ["account"],
            "mode": "upsert",
        },
    }
}
"""Every booking once, and the latest balance per account."""

_AMOUNT = re.compile(r"-?[0-9]+\.[0-9]{2}", re.ASCII)


def book(row: Any) -> Rows:
    """Check a booking and write it to both tables."""
    if not _AMOUNT.fullmatch(row.amount):
        raise Reject("not_an_amount", row.amount)
    try:
        booked = datetime.fromisoformat(row.booked)
    except ValueError:
        raise Reject("not_a_time", row.booked) from None
    number, _, digit = row.account.partition("-")
    if not number.isdigit() or int(number) % 9 != int(digit):
        raise Reject("wrong_check_digit", row.account)
    entry = int(row.entry)
    return rows(
        ledger=(entry, row.account, booked, row.amount, row.balance, row.note),
        balances={"account": row.account, "balance": row.balance, "entry": entry},
    )
