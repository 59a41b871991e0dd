"""Asks the process of a live run, for a page that shows all of them. HTTP/1.0: an answer ends with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from headway.web.runtime import Entry

PATIENCE_S = 3.0


class Unreachable(Exception):
    """The process of a run does not answer."""


class Reply:
    """An answer whose head was read. `body` gives the rest and closes the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, kind: str) -> None:
        self._reader, self._writer, self.status, self.kind = reader, writer, status, kind

    async def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        try:
            while piece := await self._reader.read(1 << 16):
                yield piece
        except OSError:
            return  # the run's process has died: this is its end too
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def ask(entry: Entry, method: str, path: str, *, body: bytes = b"", last_event: str | None = None) -> Reply:
    """Send a request to the process of `entry`. Raises Unreachable."""
    head = [f"{method} {path} HTTP/1.0", f"Host: {_address(entry)}", "Connection: close"]
    if entry.token is not None:
        head.append(f"Authorization: Bearer {entry.token}")
    if last_event is not None:
        head.append(f"Last-Event-ID: {last_event}")
    if method != "GET":
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    try:
        async with asyncio.timeout(PATIENCE_S):
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(entry.host, entry.host)  # noqa: S104 - bound to all, asked at one
            reader, writer = await asyncio.open_connection(host, entry.port)
        try:
            writer.write("\r\n".join([*head, "", ""]).encode() + body)
            # What changes workers is answered with a prediction, which takes a while.
            async with asyncio.timeout(PATIENCE_S if method == "GET" else 60.0):
                status, kind = _head(await reader.readuntil(b"\r\n\r\n"))
        except BaseException:
            writer.close()
            raise
    except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError):
        raise Unreachable(f"the run {entry.name!r} (process {entry.pid}) does not answer") from None
    return Reply(reader, writer, status, kind)


async def line_of(entry: Entry) -> dict[str, object] | None:
    """The entry of a run in the list of its own process; None where that does not answer."""
    try:
        reply = await ask(entry, "GET", "/api/runs")
        async with asyncio.timeout(PATIENCE_S):
            found = msgspec.json.decode(b"".join([piece async for piece in reply.body()]))
        return next((run for run in found["runs"] if run["id"] == entry.id), None)
    except (Unreachable, TimeoutError, msgspec.DecodeError, KeyError, TypeError):
        return None


def _address(entry: Entry) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(entry.host, entry.host)  # noqa: S104 - as above
    return f"[{host}]:{entry.port}" if ":" in host else f"{host}:{entry.port}"


def _head(text: bytes) -> tuple[int, str]:
    lines = text.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), headers.get("content-type", "application/json")
