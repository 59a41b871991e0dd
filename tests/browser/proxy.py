"""A way to the server that can be cut: bytes go through until `cut`, and new connections are refused until `mend`."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Listens on a port of its own and passes on to `port`, by whose name the server is asked."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self.heads: list[bytes] = []
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def _listen(self, port: int) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", port))
        made.listen(64)
        return made

    def __enter__(self) -> Self:
        self._go(self._accept, self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def cut(self) -> None:
        """Drop every connection and take no new one."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in ends:
            end.close()

    def mend(self) -> None:
        """Take connections again, on the same port."""
        self._listener = self._listen(self.port)
        self._go(self._accept, self._listener)

    def _go(self, what, *args) -> None:
        thread = threading.Thread(target=what, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # the run has ended, and its page with it
                near.close()
                continue
            with self._lock:
                self._ends += [near, far]
            self._go(self._pass, near, far, True)
            self._go(self._pass, far, near, False)

    def _pass(self, one: socket.socket, other: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if asks:
                    self.heads.append(data)
                    data = data.replace(b"127.0.0.1:%d" % self.port, b"127.0.0.1:%d" % self._to)
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
