"""What goes over the wire: JSON that any browser reads, whatever the values of items were."""

from __future__ import annotations

import json
from typing import Any


def encode(data: Any) -> bytes:
    """`data` as JSON. What is not finite becomes null, half a surrogate pair is shown escaped."""
    import msgspec

    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        return msgspec.json.encode(scrubbed(json.loads(json.dumps(data))))


def scrubbed(value: Any) -> Any:
    """The same with every text one that UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {scrubbed(key): scrubbed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [scrubbed(item) for item in value]
    return value
