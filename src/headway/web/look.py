"""Asks the process of a live run for what it tells, and waits for the answer. Needs nothing but Python."""

from __future__ import annotations

import http.client
import json
from typing import Any

from headway.web.runtime import Entry

PATIENCE_S = 3.0


def detail_of(entry: Entry) -> dict[str, Any] | None:
    """What the page is told of a live run; None where it does not answer, since it has ended."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(entry.host, entry.host)  # noqa: S104 - bound to all, asked at one
    headers = {"Authorization": f"Bearer {entry.token}"} if entry.token is not None else {}
    connection = http.client.HTTPConnection(host, entry.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"/api/runs/{entry.id}", headers=headers)
        answer = connection.getresponse()
        data = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return data if answer.status == 200 and isinstance(data, dict) else None
