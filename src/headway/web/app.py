"""The HTTP interface: paths, and what each gives. Who may ask is decided in guard.py, what is told elsewhere."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from headway.errors import HeadwayError
from headway.web import bodies, forward, runtime
from headway.web.export import exported
from headway.web.feed import event_id
from headway.web.guard import TooLarge, error
from headway.web.presets import presets
from headway.web.schema import schema
from headway.web.shown import Refused, Shown, predicted
from headway.web.simulate import Abandoned, simulated
from headway.web.texts import encode

STATIC = Path(__file__).parent / "static"
SIMULATIONS = 2
"""At a time; others wait."""

log = logging.getLogger("headway.web")
T = TypeVar("T")


def json(data: Any, status: int = 200) -> Response:
    """`data` as an answer."""
    return Response(encode(data), status, media_type="application/json")


class App:
    """`runs` are shown, and with `everywhere` all live runs of this machine too."""

    def __init__(self, runs: Sequence[Shown], *, everywhere: bool = False) -> None:
        self._runs, self._everywhere = list(runs), everywhere
        self._turn = asyncio.Semaphore(SIMULATIONS)
        self._closing = threading.Event()
        run = "/api/runs/{id}"
        routes = [
            Route("/", self.page),
            Route("/plotly.min.js", self.plotly),
            Route("/api/runs", self.runs),
            Route(run, self.run),
            Route(f"{run}/events", self.events),
            Route(f"{run}/items/{{seq}}", self.item),
            Route(f"{run}/export", self.export),
            Route(f"{run}/drain", self.drain, methods=["POST"]),
            Route(f"{run}/cancel", self.cancel, methods=["POST"]),
            Route(f"{run}/scale", self.scale, methods=["POST"]),
            Route(f"{run}/what-if", self.what_if, methods=["POST"]),
            Route(f"{run}/study", self.study, methods=["POST"]),
            Route("/api/simulate", self.simulate, methods=["POST"]),
            Route("/api/presets", self.presets),
            Route("/api/schema", self.schema),
            Mount("/static", StaticFiles(directory=STATIC, check_dir=False)),
        ]
        handlers: dict[Any, Callable[..., Any]] = {
            HTTPException: _http, Refused: _refused, TooLarge: _too_large, HeadwayError: _failed,
            ClientDisconnect: _gone, Abandoned: _gone, Exception: _unexpected,
        }  # fmt: skip
        self.asgi = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        watching = [asyncio.create_task(run.watch(), name=f"headway-page-{run.line()['id']}") for run in self._runs]
        for task in watching:
            task.add_done_callback(_tell)
        try:
            yield
        finally:
            self._closing.set()
            await asyncio.wait(watching, timeout=2.0) if watching else None
            for task in watching:
                task.cancel()
                with suppress(BaseException):
                    await task

    # ---- the page

    async def page(self, request: Request) -> Response:
        """The page itself."""
        if not (STATIC / "index.html").exists():
            return error(404, "this installation has no page; the interface is described at /api/schema")
        return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")

    async def plotly(self, request: Request) -> Response:
        """The charts' library, from the package that is installed."""
        return FileResponse(Path(str(files("plotly"))) / "package_data" / "plotly.min.js", media_type="text/javascript")

    # ---- runs

    async def runs(self, request: Request) -> Response:
        """All runs."""
        lines = [run.line() for run in self._runs]
        if self._everywhere:
            found = await asyncio.gather(*map(forward.line_of, runtime.entries()))
            lines += [line for line in found if line is not None]
        return json({"runs": lines})

    def _find(self, request: Request) -> Shown | runtime.Entry:
        name = request.path_params["id"]
        for run in self._runs:
            if run.line()["id"] == name:
                return run
        if self._everywhere:
            for entry in runtime.entries():
                if entry.id == name:
                    return entry
        raise Refused(404, f"there is no run {name!r}; GET /api/runs lists those there are")

    async def _there(self, request: Request, entry: runtime.Entry) -> Response:
        """The answer of the run's own process."""
        body = await request.body() if request.method == "POST" else b""
        path = request.scope["raw_path"].decode("ascii", "ignore")
        try:
            reply = await forward.ask(
                entry, request.method.replace("HEAD", "GET"), path, body=body, last_event=request.headers.get("last-event-id")
            )  # fmt: skip
        except forward.Unreachable as lost:
            return error(409, f"{lost}; it may have ended")
        return StreamingResponse(reply.body(), reply.status, media_type=reply.kind)

    async def run(self, request: Request) -> Response:
        """One run, at this moment."""
        run = self._find(request)
        return await self._there(request, run) if isinstance(run, runtime.Entry) else json(run.detail())

    async def events(self, request: Request) -> Response:
        """What happens in it, as it happens."""
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        last = event_id(request.headers.get("last-event-id"))
        if run.feed.over(last):
            return Response(status_code=204)
        return StreamingResponse(run.feed.follow(last), media_type="text/event-stream")

    async def item(self, request: Request) -> Response:
        """The life of one item."""
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        seq = event_id(request.path_params["seq"])
        if seq is None:
            raise Refused(404, "an item is named by its number, from 0")
        timeline = run.timeline()
        if timeline is None:
            raise Refused(404, "this run was not recorded: run with trace= to keep the life of every item")
        return json({"seq": seq, "steps": timeline.life(seq)})

    async def export(self, request: Request) -> Response:
        """The run as one file."""
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        name = "".join(c if c.isalnum() and c.isascii() else "-" for c in str(run.line()["name"]))[:60] or "run"
        headers = {"content-disposition": f'attachment; filename="{name}.html"'}
        return Response(exported(run), media_type="text/html; charset=utf-8", headers=headers)

    # ---- what changes something

    async def drain(self, request: Request) -> Response:
        """Read nothing more."""
        return await self._stop(request, "drain")

    async def cancel(self, request: Request) -> Response:
        """Start nothing more."""
        return await self._stop(request, "cancel")

    async def _stop(self, request: Request, mode: str) -> Response:
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        bodies.decoded(await request.body(), bodies.Nothing)
        return json({"state": run.stop(mode)})

    async def scale(self, request: Request) -> Response:
        """Change the number of workers of a stage; the answer has what is expected of it."""
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        wanted = bodies.decoded(await request.body(), bodies.Scale)
        figures = run.figures()
        run.scale(wanted.stage, wanted.workers)
        try:
            made = await self._aside(lambda: predicted(figures, {wanted.stage: wanted.workers}))
        except Refused:  # it is scaled all the same
            made = {"rate": None, "low": None, "high": None}
        expected = {name: made[name] for name in ("rate", "low", "high")}
        return json({"stage": wanted.stage, "workers": wanted.workers, "predicted": expected})

    async def what_if(self, request: Request) -> Response:
        """What other settings would give."""
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        wanted = bodies.decoded(await request.body(), bodies.WhatIf)
        figures = run.figures()
        return json(await self._aside(lambda: predicted(figures, wanted.workers, wanted.queue, wanted.window)))

    async def study(self, request: Request) -> Response:
        """What a faster stage would give, measured on the run itself."""
        run = self._find(request)
        if isinstance(run, runtime.Entry):
            return await self._there(request, run)
        wanted = bodies.decoded(await request.body(), bodies.Study)
        return json(await run.study(wanted.stage, wanted.speedup, wanted.seconds))

    async def simulate(self, request: Request) -> Response:
        """Run a pipeline that is only described, on the virtual clock."""
        wanted = bodies.decoded(await request.body(), bodies.Simulation)
        gone = threading.Event()
        asked = asyncio.create_task(
            self._aside(lambda: simulated(wanted, lambda: gone.is_set() or self._closing.is_set()))
        )
        while not asked.done():
            await asyncio.wait([asked], timeout=0.25)
            if await request.is_disconnected():
                gone.set()
        return json(await asked)

    async def _aside(self, call: Callable[[], T]) -> T:
        """Have it computed on another thread: streams go on meanwhile."""
        async with self._turn:
            try:
                answer = asyncio.get_running_loop().run_in_executor(None, call)
            except RuntimeError:  # threads cannot be had any more
                raise Refused(409, "the run has ended and its page is closing") from None
            return await answer

    # ---- the rest

    async def presets(self, request: Request) -> Response:
        """Settings that each show one thing."""
        return json({"presets": presets()})

    async def schema(self, request: Request) -> Response:
        """All this, as OpenAPI has it."""
        return json(schema())


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the page has stopped following a run", exc_info=task.exception())


async def _http(request: Request, told: HTTPException) -> Response:
    texts = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
    answer = error(told.status_code, texts.get(told.status_code, told.detail))
    answer.headers.update(told.headers or {})
    return answer


async def _refused(_request: Request, told: Refused) -> Response:
    return error(told.status, str(told))


async def _too_large(_request: Request, _told: TooLarge) -> Response:
    return error(413, "the body is too long")


async def _failed(_request: Request, told: HeadwayError) -> Response:
    return error(409, str(told))


async def _gone(_request: Request, _told: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _unexpected(request: Request, told: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=told)
    return error(500, f"a defect of Headway: {type(told).__name__}; its log has more")
