"""A browser's part of the interface: requests with any headers, and events as they come."""

from __future__ import annotations

import http.client
import json
import threading
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import urlsplit

PATIENCE_S = 30.0
JSON = "application/json"


class Client:
    """Asks the server at `url`. Headers that are None are left out."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.origin = f"http://{parts.netloc}"

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str | None]) -> Any:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given: dict[str, str | None] = {"Content-Type": JSON} if data is not None else {}
        given |= headers
        connection.request(method, path, data, {name: value for name, value in given.items() if value is not None})
        return connection, connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> SimpleNamespace:
        """The whole answer: status, headers, text, and data where it is JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection, reply = self._send(method, path, body, named)
        try:
            text = reply.read().decode()
            kind = reply.headers.get("content-type", "")
            data = json.loads(text) if kind.startswith(JSON) and text else None
            return SimpleNamespace(status=reply.status, headers=reply.headers, text=text, data=data)
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> SimpleNamespace:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str | None) -> SimpleNamespace:
        return self.ask("POST", path, {} if body is None else body, **headers)

    def events(self, path: str, last: int | None = None) -> Events:
        headers = {"Last-Event-ID": str(last)} if last is not None else {}
        return Events(*self._send("GET", path, None, headers))


class Events:
    """A stream of events: (number, name, data)."""

    def __init__(self, connection: Any, reply: Any) -> None:
        self._connection, self.reply = connection, reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reply.close()
        self._connection.close()

    def __iter__(self):
        fields: dict[str, str] = {}
        for line in self.reply:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                fields = {}
            else:
                fields = {}

    def until(self, name: str, wanted=lambda data: True) -> list[tuple[int, str, Any]]:
        """The events up to the first of that name that is wanted."""
        seen = []
        for event in self:
            seen.append(event)
            if event[1] == name and wanted(event[2]):
                return seen
        raise AssertionError(f"the stream ended without {name!r}: {[event[1] for event in seen]}")


def warm(data: Any) -> bool:
    """Whether enough has come through in this snapshot that something can be said of it."""
    return bool(data["snapshot"]["items"]["written"] >= 20)


class Held:
    """Items that wait in a stage until the test lets them go on."""

    def __init__(self, hostile: dict[int, str] | None = None) -> None:
        self.open, self.hostile = threading.Event(), hostile or {}

    def __call__(self, value: int) -> int:
        if value in self.hostile:
            raise ValueError(self.hostile[value])
        if value >= 300:
            assert self.open.wait(PATIENCE_S)
        return value
