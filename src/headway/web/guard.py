"""Who may ask: the name the server was asked by, the origin of what changes something, the token, and sizes.

* The Host header has to be a name of this server, so that no name of another's domain reaches it (DNS rebinding).
* What is not a read needs JSON as its type and, where a browser says it, the page's own origin.
* Where there is a token it is asked for everywhere, but where it is given: ``/?token=``.
"""

from __future__ import annotations

import ipaddress
import socket
from secrets import compare_digest
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.web.texts import encode

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_BODY = 1 << 20
"""Bytes of a request's body."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere and no script runs that is not a file of the page."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def error(status: int, text: str) -> Response:
    """An error as every path gives it."""
    return Response(encode({"error": text}), status, media_type="application/json")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through to `app` what may be. `host`, `port`: where the server listens; `token`: None on loopback."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str | None) -> None:
        self._app, self._host, self._port, self._token = app, host.lower(), port, token
        self._cookie = f"headway-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refused(scope, Headers(scope=scope))
        if refused is not None:
            await refused(scope, receive, answer)
            return
        await self._app(scope, _limited(receive), answer)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._knows(headers.getlist("host")):
            return error(400, f"this server is not called {headers.get('host', '')!r}; use the address it printed")
        if self._token is not None and (denied := self._denied(scope, headers)) is not None:
            return denied
        if scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and origin != f"http://{headers['host']}") or site not in ("same-origin", "none"):
            return error(403, "requests that change something are taken from the page itself only")
        if (
            scope["method"] == "POST"
            and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json"
        ):
            return error(415, "send the body as application/json")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > MOST_BODY:
            return error(413, f"a body has at most {MOST_BODY:,} bytes")
        return None

    def _knows(self, given: list[str]) -> bool:
        if len(given) != 1:
            return False
        name, port = _parted(given[0].lower())
        if port not in ("", str(self._port)):
            return False
        if name in (*LOOPBACK, self._host):
            return True
        if self._host in ("0.0.0.0", "::"):  # noqa: S104 - every address of the machine: no name of another's domain
            return name == socket.gethostname().lower() or _is_address(name)
        return False

    def _denied(self, scope: Scope, headers: Headers) -> Response | None:
        assert self._token is not None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        asked = query.pop("token", [""])[0]
        if scope["path"] == "/" and scope["method"] == "GET" and asked:
            if not self._is_token(asked):
                return PlainTextResponse("this token is not the one that was printed at the start", 401)
            rest = urlencode(query, doseq=True)
            answer = RedirectResponse(f"/?{rest}" if rest else "/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer):
            return None
        if self._is_token(cookie_parser(headers.get("cookie", "")).get(self._cookie, "")):
            return None
        text = "open the address that was printed at the start: it holds the token"
        return error(401, text) if scope["path"].startswith("/api") else PlainTextResponse(text, 401)

    def _is_token(self, given: str) -> bool:
        return compare_digest(given.encode("utf-8", "surrogateescape"), (self._token or "").encode())


def _limited(receive: Receive) -> Receive:
    """Bodies without a length are cut too."""
    read = 0

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > MOST_BODY:
            raise TooLarge
        return message

    return limited


class TooLarge(Exception):
    """A body is longer than may be."""


def _parted(host: str) -> tuple[str, str]:
    """Name and port of a Host header."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
