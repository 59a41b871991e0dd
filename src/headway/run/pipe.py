"""Messages between a run and its child processes: a few pickles one after the other, none copied on its way.

A message is told as its number of parts, the length of each, and the parts; each part is one pickle.
Large bytes go from the value to the pipe and from the pipe to the value, so that an item exists once
at each end, however large it is. What is in the messages does not belong here.
"""

from __future__ import annotations

import os
import pickle
import select
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Protocol

Part = list[bytes]
"""One pickle, in pieces."""

_WORD = Struct("<Q")
_SMALL = 1 << 16
"""Bytes that are copied together to save calls of the system; a pipe holds about as many."""


class Ended(EOFError):
    """The other end of the pipe is closed."""


class Pieces:
    """The file that a pickler writes to: it keeps what it is given, large values themselves among it."""

    def __init__(self) -> None:
        self._part: Part = []

    def write(self, data: bytes) -> None:
        self._part.append(data)

    def take(self) -> Part:
        """What was written since the last time."""
        part, self._part = self._part, []
        return part


def pickled(value: Any) -> Part:
    """`value` as a part. Raises what pickling raises."""
    pieces = Pieces()
    pickle.Pickler(pieces, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return pieces.take()


def framed(parts: Sequence[Part]) -> list[bytes]:
    """A message in the pieces in which it is written: small ones joined, large ones as they are."""
    words = [len(parts), *(sum(map(len, part)) for part in parts)]
    near = [b"".join(map(_WORD.pack, words))]
    out: list[bytes] = []
    for part in parts:
        for piece in part:
            if len(piece) < _SMALL:
                near.append(piece)
                continue
            out += [b"".join(near), piece]
            near = []
    out.append(b"".join(near))
    return [piece for piece in out if piece]


class Outgoing:
    """The end of a pipe that is written to. Raises OSError where nobody reads any more."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def send(self, pieces: Iterable[bytes]) -> None:
        """Write a framed message, whole."""
        for piece in pieces:
            done = os.write(self.handle, piece)
            if done < len(piece):
                rest = memoryview(piece)[done:]
                while rest:
                    rest = rest[os.write(self.handle, rest) :]

    def close(self) -> None:
        os.close(self.handle)


class _Bytes(Protocol):
    """Where the bytes of a message come from. Raises Ended where they end too early."""

    def read(self, size: int) -> bytes: ...

    def readinto(self, view: memoryview) -> None: ...


class Incoming:
    """The end of a pipe that is read. Raises Ended where the message before was the last."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._last: Message | None = None

    def poll(self, timeout_s: float) -> bool:
        """Wait until something comes, or the end does, for at most so long."""
        return bool(select.select([self.handle], [], [], timeout_s)[0])

    def receive(self) -> Message:
        """The next message. What was not loaded of the one before is passed over."""
        if self._last is not None:
            self._last.skip()
        (count,) = _WORD.unpack(self.read(_WORD.size))
        data = self.read(_WORD.size * count)
        lengths = [_WORD.unpack_from(data, at)[0] for at in range(0, len(data), _WORD.size)]
        message = Message(self, lengths)
        if message.size > _SMALL:
            self._last = message
            return message
        self._last = None
        return Message(_Memory(self.read(message.size)), lengths)

    def read(self, size: int) -> bytes:
        data = os.read(self.handle, size)
        if len(data) == size:
            return data
        pieces, left = [data], size - len(data)
        while left:
            if not data:
                raise Ended
            data = os.read(self.handle, left)
            pieces.append(data)
            left -= len(data)
        return b"".join(pieces)

    def readinto(self, view: memoryview) -> None:
        while view:
            done = os.readv(self.handle, [view])
            if not done:
                raise Ended
            view = view[done:]

    def close(self) -> None:
        os.close(self.handle)


class _Memory:
    """Bytes that have come already."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def readinto(self, view: memoryview) -> None:
        view[:] = self.read(len(view))


class Message:
    """A message on its way: its parts are loaded one after the other, each once. `size`: in bytes."""

    def __init__(self, source: _Bytes, lengths: Sequence[int]) -> None:
        self.size = sum(lengths)
        self._source, self._lengths = source, iter(lengths)

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Message:
        """One that has not travelled."""
        return cls(_Memory(b"".join(b"".join(part) for part in parts)), [sum(map(len, part)) for part in parts])

    def load(self) -> Any:
        """The value of the next part. Raises what unpickling raises; the part after it can be loaded all the same."""
        length = next(self._lengths)
        if length <= _SMALL:
            return pickle.loads(self._source.read(length))
        part = _File(self._source, length)
        try:
            return pickle.Unpickler(part).load()
        finally:
            part.skip()

    def skip(self) -> None:
        """Pass over what has not been loaded."""
        for length in self._lengths:
            _File(self._source, length).skip()


class _File:
    """One part as the file that an unpickler reads."""

    def __init__(self, source: _Bytes, size: int) -> None:
        self._source, self._left = source, size

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        data = self._source.read(size)
        self._left -= size
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: self._left]
        self._source.readinto(view)
        self._left -= len(view)
        return len(view)

    def readline(self) -> bytes:
        line = bytearray()
        while self._left and not line.endswith(b"\n"):
            line += self.read(1)
        return bytes(line)

    def skip(self) -> None:
        while self._left:
            self.read(_SMALL)
