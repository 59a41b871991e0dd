"""Serves the page: on a thread beside a run, or in front for `headway ui`."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.errors import PlanError

if TYPE_CHECKING:
    from headway.web.shown import Shown

LEAVE_S = 2
"""How long a reader that does not read may hold up the end."""


def address_of(where: bool | str) -> tuple[str, int]:
    """Host and port of `ui=`. Raises PlanError for what is none."""
    if where is True:
        return "127.0.0.1", 0
    host, colon, port = str(where).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise PlanError(f'ui must be True, False or "host:port" as in "127.0.0.1:8000", not {where!r}')
    return host, int(port)


def check_extra() -> None:
    """Raise PlanError where what serves the page is not installed."""
    try:
        import msgspec  # noqa: F401 - only whether it is there
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise PlanError(f"the page needs {error.name}, which is not installed: pip install 'headway[ui]'") from None


def check(where: bool | str) -> None:
    """Raise PlanError where no page can be served at `where`."""
    address_of(where)
    check_extra()


class Server:
    """Listens once it is made, so its address is known. Raises PlanError where it cannot.

    On an address that other machines reach every request needs ``token``.
    """

    def __init__(self, runs: Sequence[Shown], where: bool | str, *, everywhere: bool = False) -> None:
        check_extra()
        from headway.web.guard import is_loopback

        self.host, port = address_of(where)
        self._socket = _listening(self.host, port)
        self.port: int = self._socket.getsockname()[1]
        self.token = None if is_loopback(self.host) else secrets.token_urlsafe(24)
        self._runs, self._everywhere = runs, everywhere
        self._thread: threading.Thread | None = None
        self._server: Any = None
        self._stopped = threading.Event()

    @property
    def url(self) -> str:
        """What to open in a browser."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - it was asked for
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token is not None else "")

    def serve(self) -> None:
        """Serve on this thread until `stop`, or a signal where it is the main one."""
        import uvicorn

        from headway.web.app import App
        from headway.web.guard import Guard

        app = App(self._runs, everywhere=self._everywhere)
        guarded = Guard(app.asgi, host=self.host, port=self.port, token=self.token)
        config = uvicorn.Config(
            guarded, loop="asyncio", http="h11", ws="none", lifespan="on", log_config=None, log_level="critical",
            access_log=False, server_header=False, timeout_graceful_shutdown=LEAVE_S,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        if self._stopped.is_set():
            self._server.should_exit = True
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def start(self) -> None:
        """Serve on a thread of its own."""
        self._thread = threading.Thread(target=self.serve, name=f"headway-page-{self.port}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, once those who read have been told the end; nothing is left."""
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise PlanError(f"the page cannot be served at {host}:{port}: {error.strerror or error}") from None
    return made
