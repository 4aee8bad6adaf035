"""Nothing of an escaped exception reaches the client (EXEC-13)."""

import json
import logging

import pytest
from starlette.types import Message, Receive, Scope, Send

from middleware.refusals import LastResortMiddleware
from tests.support.requirement import requirement


async def run(start_first: bool) -> list[Message]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if start_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("secret at /srv/app.py")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    await LastResortMiddleware(app)({"type": "http", "path": "/", "method": "GET", "headers": []}, receive, send)
    return sent


@requirement("EXEC-13")
async def test_an_exception_becomes_a_plain_500_and_its_cause_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    start, body = await run(start_first=False)
    assert start["status"] == 500
    assert json.loads(body["body"]) == {"code": "internal_error", "message": "Internal error"}
    assert "secret at" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@requirement("EXEC-13")
async def test_a_response_that_has_begun_is_left_short_rather_than_made_up() -> None:
    assert [message["type"] for message in await run(start_first=True)] == ["http.response.start"]
