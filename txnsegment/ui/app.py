"""The routes of `txnsegment ui`. Each answer is made from the board of the watcher, so no request reaches the cluster."""

from __future__ import annotations

import importlib.resources
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txnsegment.look.series import exposition
from txnsegment.look.watcher import Watcher
from txnsegment.ui.access import COOKIE, Gate
from txnsegment.ui.pages import Pages

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of each answer. They let a page load what this server serves, and nothing else."""

STATIC = {"ui.css": "text/css", "ui.js": "text/javascript", "ui.svg": "image/svg+xml"}

MOST_BODY = 4096
"""Maximum size in bytes of the form that carries a token."""

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Guard:
    """Refuses requests that the gate does not admit, and adds HEADERS to each answer."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.lower().encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, sending)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._gate.knows_host(headers.get("host")):
            return PlainTextResponse(
                "The Host header does not name this machine. Open the page as http://127.0.0.1:PORT or http://localhost:PORT.\n",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        path = scope["path"]
        if path == "/login" or path.startswith("/static/"):
            return None
        if self._gate.admits(headers.get("authorization"), Request(scope).cookies.get(COOKIE)):
            return None
        if path == "/metrics":
            refused = {"WWW-Authenticate": "Bearer"}
            return PlainTextResponse("Give the token as Authorization: Bearer TOKEN.\n", HTTPStatus.UNAUTHORIZED, refused)
        return RedirectResponse("/login", HTTPStatus.SEE_OTHER)


def make_app(watcher: Watcher, gate: Gate) -> Starlette:
    """Return the application. It serves what `watcher` has found to whom `gate` admits."""
    pages = Pages()

    def page(render: Callable[[Request], str]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return HTMLResponse(render(request))

        return answer

    def topic(request: Request) -> str:
        name = request.query_params.get("name", "")
        watcher.ask(name)
        return pages.topic(watcher.board, watcher.now_s, name)

    async def metrics(request: Request) -> Response:
        return Response(exposition(lambda: watcher.board, lambda: watcher.now_s), headers={"Content-Type": PROMETHEUS})

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("There is no such file.\n", HTTPStatus.NOT_FOUND)
        return Response(importlib.resources.files("txnsegment.ui").joinpath("static", name).read_bytes(), media_type=STATIC[name])

    async def login(request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(pages.login(wrong=False)) if gate.needs_token else RedirectResponse("/", HTTPStatus.SEE_OTHER)
        session = gate.session(await _token_of(request))
        if session is None:
            return HTMLResponse(pages.login(wrong=True), HTTPStatus.FORBIDDEN)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    return Starlette(
        routes=[
            Route("/", page(lambda r: pages.overview(watcher.board, watcher.now_s, r.query_params.get("q", "")))),
            Route("/topic", page(topic)),
            Route(
                "/transactions",
                page(lambda r: pages.transactions(watcher.board, watcher.now_s, r.query_params.get("state", ""))),
            ),
            Route("/drivers", page(lambda r: pages.drivers(watcher.board, watcher.now_s))),
            Route("/subscriptions", page(lambda r: pages.subscriptions(watcher.board, watcher.now_s))),
            Route("/storage", page(lambda r: pages.storage(watcher.board, watcher.now_s))),
            Route("/health", page(lambda r: pages.health(watcher.board, watcher.now_s))),
            Route("/metrics", metrics),
            Route("/static/{name}", static),
            Route("/login", login, methods=["GET", "POST"]),
        ],
        middleware=[Middleware(Guard, gate=gate)],
    )


async def _token_of(request: Request) -> str:
    body = b""
    async for some in request.stream():
        body += some
        if len(body) > MOST_BODY:
            return ""
    given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])
    return given[0]
