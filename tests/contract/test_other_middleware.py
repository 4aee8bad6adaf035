"""Middleware of an embedder, around the application or next to its routes, over HTTP."""

from collections.abc import Callable

import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import chat_body, frames, running_service

Place = Callable[[FastAPI, list[Message]], None]


class Recording:
    """Keeps each message that is sent through it."""

    def __init__(self, app: ASGIApp, seen: list[Message]) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def recorded(message: Message) -> None:
            self._seen.append(message)
            await send(message)

        await self._app(scope, receive, recorded if scope["type"] == "http" else send)


def around_all(app: FastAPI, seen: list[Message]) -> None:
    app.add_middleware(Recording, seen=seen)


def next_to_the_routes(app: FastAPI, seen: list[Message]) -> None:
    app.user_middleware.append(Middleware(Recording, seen=seen))


@requirement("CHAT-87")
@pytest.mark.parametrize("place", [around_all, next_to_the_routes])
async def test_middleware_that_wraps_send_sees_every_message_of_a_stream(place: Place) -> None:
    seen: list[Message] = []
    model = ScriptModel(says("one", "two", "three"))
    async with running_service(model, prepare=lambda app: place(app, seen)) as service:
        response = await service.http.post("/engine/chat", json=chat_body())
    assert [event for event, _ in frames(response.text)] == [*["text-delta"] * 3, "done"]
    head, *pieces = seen
    assert (head["type"], head["status"]) == ("http.response.start", 200)
    assert b"".join(piece["body"] for piece in pieces) == response.content
    assert [piece["more_body"] for piece in pieces] == [True] * 3 + [False]


class Refusing:
    """Refuses everything but health."""

    def __init__(self, app: ASGIApp, seen: list[Message]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 418, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


@requirement("OPS-504")
@pytest.mark.parametrize("middleware", [Refusing, Recording])
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/namespaced", "/engine/chat"])
async def test_middleware_that_we_do_not_know_has_every_request_and_every_answer(
    middleware: type[Refusing] | type[Recording], outside: bool, path: str
) -> None:
    seen: list[Message] = []

    def prepare(app: FastAPI) -> None:
        if outside:
            app.add_middleware(middleware, seen=seen)
        else:
            app.user_middleware.append(Middleware(middleware, seen=seen))

    async with running_service(prepare=prepare) as service:
        accepted = {"Accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        response = await service.http.post(path, json=ping, headers=accepted)
    if middleware is Refusing:
        assert response.status_code == 418
    else:
        assert b"".join(each.get("body", b"") for each in seen) == response.content
        assert [each["status"] for each in seen if each["type"] == "http.response.start"] == [response.status_code]
