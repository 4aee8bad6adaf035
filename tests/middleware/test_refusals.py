"""Nothing of an escaped exception reaches the client (EXEC-13)."""

import json
import logging
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.support.front import front
from tests.support.requirement import requirement


async def run(start_first: bool, headers: Sequence[tuple[bytes, bytes]] = ()) -> list[Message]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if start_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("secret at /srv/app.py")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    await front(app)({"type": "http", "path": "/healthz", "method": "GET", "headers": headers}, receive, send)
    return sent


@requirement("OPS-14")
@pytest.mark.parametrize(("given", "kept"), [(b"req_7", True), (b"-", False), (b"a b", False), (b"", False)])
async def test_the_mark_of_no_request_and_what_is_malformed_are_no_correlation_id(given: bytes, kept: bool) -> None:
    answered = (await run(start_first=True, headers=[(b"x-correlation-id", given)]))[0]["headers"]
    assert (dict(answered)[b"x-correlation-id"] == given) is kept


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
