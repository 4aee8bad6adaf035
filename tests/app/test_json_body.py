"""Bodies that are refused while they arrive (OPS-40, FACE-44), or because they are no object (OPS-39, FACE-43)."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.json_body import MAX_VALUES, ValueCount
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, KEY, chat_body, frames, running_service

LARGE = 8_000_000
DOORS = ["/mcp", "/engine/chat", "/operations/call", "/operations/batch"]


async def first_answer(url: str, path: str, beginning: bytes) -> tuple[int, dict[str, Any]]:
    """The answer to a request of which the client sends the *beginning* only."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: 2026-07-28\r\nContent-Length: {LARGE}\r\n\r\n"
        )
        writer.write(head.encode() + beginning)
        async with asyncio.timeout(BOUND_S):
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(int(length.split(b":")[1]))
        return int(answer.split()[1]), json.loads(body)
    finally:
        writer.close()


@requirement("OPS-39", "FACE-43")
@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("body", [b"[]", b" \r\n\t[" + b"{}," * 20_000 + b"{}]", b'"' + b"text" * 50_000 + b'"', b"17"])
async def test_a_body_that_is_no_object_is_refused(path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with running_service() as service:
        response = await service.http.post(path, content=body, headers=headers)
    answer = response.json()
    assert response.status_code == 400
    if path != "/mcp":
        assert answer == {"code": "invalid_request", "message": "Request body must be a JSON object"}
    elif b"[" in body:
        assert answer["error"]["message"] == "A batch is not part of MCP: send one message at a time."
    else:
        assert answer["error"]["message"] == "A message must be a JSON object."


@requirement("OPS-40", "FACE-44")
@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("many", [b'{"a": [' + b"0," * 60_000, b'{"a": [' + b"[" * 60_000, b'{"k":0,' * 60_000])
async def test_a_body_of_too_many_values_is_refused_before_it_is_whole(path: str, many: bytes) -> None:
    async with running_service() as service:
        status, answer = await first_answer(service.url, path, many)
    assert status == 413
    text = answer["error"]["message"] if path == "/mcp" else answer["message"]
    assert "more than 50000 values" in text


@requirement("OPS-40")
async def test_a_long_text_is_no_matter_of_values() -> None:
    text = 'He said: "[1,2,{}]\\", again, and again. ' * 50_000
    body = chat_body(client_context={"said": text})
    async with running_service(ScriptModel(says("ok"))) as service:
        response = await service.http.post("/engine/chat", json=body)
    assert frames(response.text)[-1][0] == "done"


@requirement("OPS-40")
async def test_a_body_just_below_the_bound_on_values_is_taken() -> None:
    body = chat_body(client_context={"numbers": list(range(MAX_VALUES - 100))})
    async with running_service(ScriptModel(says("ok"))) as service:
        assert frames((await service.http.post("/engine/chat", json=body)).text)[-1][0] == "done"


@requirement("OPS-40")
def test_values_are_counted_outside_strings_wherever_the_text_is_cut() -> None:
    value = {'a"[,': ["\\", '\\"', "{}", {}, [], [1, [2, "\\\\"]]], "b\\": {"c": ',,"' * 9}, "": "\\\\\\"}
    text = json.dumps(value).encode()
    # By hand: the commas and opening brackets of its structure.
    expected = text_count(value)
    chance = random.Random(7)
    for _ in range(200):
        count = ValueCount()
        for piece in pieces(text, chance):
            count.feed(piece)
        assert count.values == expected


def text_count(value: Any) -> int:
    """Commas and opening brackets of the JSON of *value*."""
    if isinstance(value, dict):
        return 1 + max(len(value) - 1, 0) + sum(map(text_count, value.values()))
    if isinstance(value, list):
        return 1 + max(len(value) - 1, 0) + sum(map(text_count, value))
    return 0


def pieces(text: bytes, chance: random.Random) -> Iterator[bytes]:
    while text:
        cut = chance.randint(0, 9)
        yield text[:cut]
        text = text[cut:]
