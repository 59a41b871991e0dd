"""The bytes of one input, uncompressed: read at any place of a plain file, or in sequence.

What does not belong here: where the input is cut, what it holds.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from headway.errors import HeadwayError, PlanError
from headway.io.location import STANDARD_INPUT, Location
from headway.text import told

HASHED_BYTES = 64 << 10
READ_BYTES = 1 << 20
MARK_BYTES = 10
"""What tells how a file is packed."""

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}
_OTHERS = {b"PK\x03\x04": "zip", b"PAR1": "Parquet", b"7z\xbc\xaf": "7z", b"SQLite format": "SQLite"}


class Content(Protocol):
    """What a source of ranges asks of an input. `at` never goes back."""

    @property
    def size(self) -> int | None:
        """Uncompressed bytes; None where that is known only at the end."""
        ...

    @property
    def whole(self) -> bool:
        """Whether any process can read any part of it."""
        ...

    @property
    def seal(self) -> Seal:
        """What it is known by."""
        ...

    def peek(self, at: int, n: int) -> tuple[bytes, bool]:
        """Give up to `n` bytes from `at`, fewer only at the end, and whether the input ends with them."""
        ...

    def close(self) -> None:
        """Close the input; a second call does nothing."""
        ...


class Seal(NamedTuple):
    """What an input is known by, as it is stored: its size, and a hash of its first and last `hashed` bytes.

    Where the size is not known (standard input, some addresses), of the first alone.
    """

    size: int | None
    hashed: int
    hash: str


class FileContent:
    """A plain file of this machine. Its size is fixed when it is opened: `size`, or what it is then."""

    whole = True

    def __init__(self, path: str, size: int | None = None) -> None:
        self._path, self._descriptor = path, _opened(path)
        found = os.fstat(self._descriptor).st_size
        self._size = found if size is None else size
        if found < self._size:
            self.close()
            raise _shorter(path)

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._size

    @property
    def seal(self) -> Seal:
        """What it is known by."""
        return _sealed(self._descriptor, self._size)

    def peek(self, at: int, n: int) -> tuple[bytes, bool]:
        """Read at a place."""
        wanted = max(0, min(n, self._size - at))
        data = os.pread(self._descriptor, wanted, at)
        if len(data) < wanted:
            raise _shorter(self._path)
        return data, at + wanted >= self._size

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StreamContent:
    """What can only be read from its start on: compressed files, addresses, standard input."""

    whole = False
    size = None

    def __init__(self, location: Location) -> None:
        self._name, self._stored = location.name, _Stored(location)
        try:
            self.seal = self._stored.seal
            self._stream = _unpacked(self._stored, location)
        except BaseException:
            self._stored.close()
            raise
        self._buffer, self._base, self._ended = b"", 0, False

    def peek(self, at: int, n: int) -> tuple[bytes, bool]:
        """Read on; what lies before `at` is forgotten."""
        if at < self._base:
            raise HeadwayError(f"{self._name} can be read only once")
        passed = min(at - self._base, len(self._buffer))
        self._buffer, self._base = self._buffer[passed:], self._base + passed
        while self._base < at:
            skipped = self._read(min(READ_BYTES, at - self._base))
            if not skipped:
                raise HeadwayError(f"{self._name} ends at byte {self._base}, before byte {at} where the job stood")
            self._base += len(skipped)
        parts, held = [self._buffer], len(self._buffer)
        while held <= n and not self._ended:  # one byte more tells whether it goes on
            parts.append(self._read(n + 1 - held))
            held += len(parts[-1])
        self._buffer = b"".join(parts)
        return self._buffer[:n], self._ended and held <= n

    def close(self) -> None:
        """Close the input."""
        if self._stream is not self._stored:
            self._stream.close()
        self._stored.close()

    def _read(self, n: int) -> bytes:
        try:
            data: bytes = self._stream.read(n)
        except Exception as error:  # each library has errors of its own for damaged data
            at = self._base + len(self._buffer)
            what = str(error) or type(error).__name__
            raise HeadwayError(f"{self._name} cannot be read on behind byte {at}: {what}") from error
        self._ended = not data
        return data


def opened(location: Location, size: int | None = None) -> Content:
    """Open an input, whatever it is packed with. `size`: take only that many bytes of a plain file.

    Raises PlanError if it cannot be opened, HeadwayError if it is shorter.
    """
    if location.is_file:
        descriptor = _opened(location.address)
        try:
            start = os.pread(descriptor, MARK_BYTES, 0)
        finally:
            os.close(descriptor)
        if _packing(start) is None:
            return FileContent(location.address, size)
    return StreamContent(location)


def has_grown(location: Location, before: Seal) -> bool:
    """Whether a file is what it was then, with more behind it."""
    if not location.is_file or before.size is None:
        return False
    return Path(location.address).stat().st_size > before.size and begins_as(location, before)


def begins_as(location: Location, before: Seal) -> bool:
    """Whether a file still is what it was then, or has more behind it; True where nobody can look."""
    if not location.is_file or before.size is None or not Path(location.address).exists():
        return True
    descriptor = _opened(location.address)
    try:
        return _sealed(descriptor, before.size) == before
    finally:
        os.close(descriptor)


def refuse_binary(start: bytes, where: object) -> None:
    """Raise PlanError if a file begins as something that is no text."""
    for mark, name in _OTHERS.items():
        if start.startswith(mark):
            hint = "add --format parquet" if name == "Parquet" else "unpack or convert it first"
            raise PlanError(f"{where} is a {name} file; {hint}")


class _Stored(io.RawIOBase):
    """The bytes of an input as they are stored, read in sequence; its first ones can be looked at before."""

    def __init__(self, location: Location) -> None:
        super().__init__()
        self._stream = _stream(location)
        self._name, self._owned = location.name, location.address != STANDARD_INPUT
        self._head = b""
        try:
            self.start = self._peeked(HASHED_BYTES)
            self.seal = self._sealed(location)
        except BaseException:
            self.close()
            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        wanted = len(buffer)
        if self._head:
            data, self._head = self._head[:wanted], self._head[wanted:]
        else:
            data = self._stream.read(wanted)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and self._owned:
            self._stream.close()
        super().close()

    def _peeked(self, n: int) -> bytes:
        try:
            while len(self._head) < n and (data := self._stream.read(n - len(self._head))):
                self._head += data
        except Exception as error:  # each kind of storage has errors of its own
            raise HeadwayError(f"{self._name} cannot be read: {told(error)}") from error
        return self._head

    def _sealed(self, location: Location) -> Seal:
        if location.is_file:
            return _sealed(self._stream.fileno(), os.fstat(self._stream.fileno()).st_size)
        size = getattr(self._stream, "size", None) if self._owned else None
        return Seal(size, len(self.start), hashlib.sha256(self.start).hexdigest())


def _sealed(descriptor: int, size: int) -> Seal:
    hashed = min(HASHED_BYTES, size)
    digest = hashlib.sha256(os.pread(descriptor, hashed, 0))
    digest.update(os.pread(descriptor, hashed, size - hashed))
    return Seal(size, hashed, digest.hexdigest())


def _stream(location: Location) -> IO[bytes]:
    if location.address == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.isatty():
            raise PlanError("standard input is a terminal; pipe a file into it: headway import - < FILE")
        return sys.stdin.buffer
    if location.is_file:
        return os.fdopen(_opened(location.address), "rb", buffering=0)
    try:
        import fsspec
    except ModuleNotFoundError as missing:
        raise PlanError(f"{location.name}: addresses need {missing.name}: pip install 'headway[import]'") from missing
    try:
        found: IO[bytes] = fsspec.open(location.address, "rb").open()
    except Exception as error:  # each kind of storage has errors of its own
        raise PlanError(f"{location.name}: {told(error)}") from error
    return found


def _packing(start: bytes) -> str | None:
    if start[:3] == b"BZh" and start[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):  # a block, or the end of an empty file
        return "bzip2"
    if start[1:4] == b"\x2a\x4d\x18" and 0x50 <= start[0] <= 0x5F:  # a frame to be skipped (RFC 8878, 3.1.2)
        return "zstd"
    return next((name for mark, name in _PACKED.items() if start.startswith(mark)), None)


def _unpacked(stored: _Stored, location: Location) -> Any:
    packing = _packing(stored.start)
    if packing is None:
        return io.BufferedReader(stored, READ_BYTES)
    try:
        open_ = _opener(packing)
    except ModuleNotFoundError as missing:
        raise PlanError(
            f"{location.name} is packed with {packing}, which needs {missing.name}: pip install 'headway[import]'"
        ) from missing
    return open_(io.BufferedReader(stored, READ_BYTES))


def _opener(packing: str) -> Any:
    if packing == "zstd":
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        return zstd.ZstdFile
    if packing == "gzip":
        return import_module("gzip").open
    one = import_module("bz2").BZ2Decompressor if packing == "bzip2" else import_module("lzma").LZMADecompressor
    return lambda stored: io.BufferedReader(_Members(stored, one), READ_BYTES)


class _Members(io.RawIOBase):
    """What packed streams hold that stand one behind the other, with NULs between them at most.

    The libraries' own files take one that is damaged at its start for the end of the input.
    """

    def __init__(self, stored: IO[bytes], new: Callable[[], Any]) -> None:
        super().__init__()
        self._stored, self._new, self._one = stored, new, new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = b""
        while not data:
            if self._one.eof:
                ahead = self._one.unused_data.lstrip(b"\0")
                while not ahead:
                    if not (ahead := self._stored.read(READ_BYTES)):
                        return 0
                    ahead = ahead.lstrip(b"\0")
                self._one = self._new()
            else:
                ahead = self._stored.read(READ_BYTES) if self._one.needs_input else b""
                if self._one.needs_input and not ahead:
                    raise EOFError("it ends within what is packed")
            data = self._one.decompress(ahead, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _opened(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise PlanError(f"{path}: there is no such file") from None
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        hint = f"; name its files: '{path}/*.csv'" if stat.S_ISDIR(mode) else ""
        raise PlanError(f"{path} is {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}{hint}")
    return descriptor


def _shorter(path: str) -> HeadwayError:
    return HeadwayError(f"{path} became shorter while it was read")
