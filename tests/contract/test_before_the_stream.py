"""Refusals before a stream opens, and their shape (CHAT-1 to CHAT-24, ACCESS-1 to ACCESS-3)."""

import json
from typing import Any

import httpx
import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import KEY, SUSPENDED_KEY, chat_body, frames, running_service


def refusal(response: httpx.Response, status: int, code: str) -> str:
    """Checks shape and code; gives the message."""
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), response.text
    assert set(body) == {"code", "message"}
    assert isinstance(body["message"], str)
    assert body["message"]
    assert response.headers["content-type"].startswith("application/json")
    assert "Traceback" not in response.text
    return str(body["message"])


def with_messages(messages: Any) -> dict[str, Any]:
    return {"messages": messages, "metadata": {"correlation_id": "req_1"}}


USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "tool_browse", "arguments": "{}"}}

BAD_BODIES: list[tuple[str, str, bytes]] = [
    ("CHAT-2", "not JSON", b"{bad"),
    ("CHAT-3", "an array", b"[]"),
    ("CHAT-3", "a string", b'"x"'),
    ("CHAT-3", "nothing", b""),
    ("CHAT-3", "null", b"null"),
    ("CHAT-4", "no messages", b"{}"),
    *(
        (case, name, json.dumps(body).encode())
        for case, name, body in [
            ("CHAT-5", "no message at all", with_messages([])),
            ("CHAT-6", "messages as text", with_messages("hi")),
            ("CHAT-6", "a message that is a number", with_messages([5])),
            ("CHAT-6", "no role", with_messages([{"content": "hi"}])),
            ("CHAT-6", "no content", with_messages([{"role": "user"}])),
            ("CHAT-7", "an unknown role", with_messages([{"role": "robot", "content": "hi"}])),
            ("CHAT-8", "a number as content", with_messages([{"role": "user", "content": 5}])),
            ("CHAT-8", "null content", with_messages([{"role": "user", "content": None}])),
            ("CHAT-8", "null content of the system", with_messages([{"role": "system", "content": None}])),
            ("CHAT-102", "null content without calls", with_messages([USER, {"role": "assistant", "content": None}])),
            (
                "CHAT-102",
                "null content beside no call",
                with_messages([USER, {"role": "assistant", "content": None, "tool_calls": []}]),
            ),
            (
                "CHAT-102",
                "a tool message without content",
                with_messages(
                    [
                        USER,
                        {"role": "assistant", "content": None, "tool_calls": [CALL]},
                        {"role": "tool", "tool_call_id": "c1"},
                    ]
                ),
            ),
            ("CHAT-101", "a part that is no object", with_messages([{"role": "user", "content": ["x"]}])),
            ("CHAT-101", "a part without a type", with_messages([{"role": "user", "content": [{"text": "x"}]}])),
            ("CHAT-101", "a text part without text", with_messages([{"role": "user", "content": [{"type": "text"}]}])),
            ("CHAT-101", "no part at all", with_messages([{"role": "user", "content": []}])),
            ("CHAT-10", "no metadata", {"messages": [USER]}),
            ("CHAT-11", "metadata as text", {"messages": [USER], "metadata": "x"}),
            ("CHAT-11", "metadata as a list", {"messages": [USER], "metadata": [1]}),
            ("CHAT-11", "empty metadata", {"messages": [USER], "metadata": {}}),
            ("CHAT-11", "an empty correlation id", chat_body(correlation_id="")),
            ("CHAT-11", "a number as correlation id", chat_body(correlation_id=7)),
            ("CHAT-11", "a correlation id with a line break", chat_body(correlation_id="req_1\n")),
            ("CHAT-12", "an unknown trigger", chat_body(trigger="cron")),
            ("CHAT-14", "a number as client context", chat_body(client_context=5)),
            ("CHAT-16", "a tool message that names no call", with_messages([USER, {"role": "tool", "content": "x"}])),
            (
                "CHAT-16",
                "a tool message that answers nothing",
                with_messages([USER, {"role": "tool", "content": "x", "tool_call_id": "c9"}]),
            ),
            (
                "CHAT-16",
                "a call without its result",
                with_messages([USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]),
            ),
            (
                "CHAT-16",
                "a call whose result comes too late",
                with_messages(
                    [
                        USER,
                        {"role": "assistant", "content": "", "tool_calls": [CALL]},
                        USER,
                        {"role": "tool", "content": "x", "tool_call_id": "c1"},
                    ]
                ),
            ),
            ("CHAT-16", "tool calls of a user", with_messages([{**USER, "tool_calls": [CALL]}])),
        ]
    ),
]


@requirement(
    "CHAT-2",
    "CHAT-3",
    "CHAT-4",
    "CHAT-5",
    "CHAT-6",
    "CHAT-7",
    "CHAT-8",
    "CHAT-10",
    "CHAT-11",
    "CHAT-12",
    "CHAT-14",
    "CHAT-16",
    "CHAT-23",
)
async def test_a_body_that_breaks_the_contract_is_refused_with_400_before_the_model_is_called() -> None:
    model = ScriptModel()
    async with running_service(model) as service:
        for case, name, body in BAD_BODIES:
            response = await service.http.post(
                "/engine/chat", content=body, headers={"Content-Type": "application/json"}
            )
            assert refusal(response, 400, "invalid_request"), (case, name)
    assert model.requests == []


@requirement("CHAT-4")
async def test_missing_messages_are_named() -> None:
    async with running_service() as service:
        response = await service.http.post("/engine/chat", json={})
    assert "messages array" in refusal(response, 400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(with_messages([{"role": "user", "content": ""}]), id="CHAT-9 empty content"),
        pytest.param(chat_body(client_context={"path": "/finances", "x": {}}), id="CHAT-14 client context"),
        pytest.param(with_messages([USER, {"role": "assistant", "content": "and?"}]), id="CHAT-17 assistant last"),
        pytest.param(with_messages([{"role": "system", "content": "be brief"}]), id="CHAT-17 system only"),
        pytest.param(
            with_messages(
                [
                    USER,
                    {"role": "assistant", "content": "", "tool_calls": [CALL]},
                    {"role": "tool", "content": "x", "tool_call_id": "c1"},
                ]
            ),
            id="CHAT-16 a call with its result",
        ),
    ],
)
@requirement("CHAT-9", "CHAT-14", "CHAT-16", "CHAT-17")
async def test_what_the_contract_allows_is_taken(body: dict[str, Any]) -> None:
    model = ScriptModel(says("ok"))
    async with running_service(model) as service:
        assert (await service.chat(body))[-1][0] == "done"
    assert [dict(message) for message in model.requests[0].messages] == body["messages"]


@requirement("CHAT-15")
async def test_tools_and_model_in_the_body_have_no_effect() -> None:
    model = ScriptModel(says("ok"), says("ok"))
    async with running_service(model) as service:
        plain = await service.chat()
        loaded = await service.chat(
            {
                **chat_body(api_key="sk-123456789", tools=[{"name": "x"}]),
                "tools": [{"name": "rm"}],
                "model": "other",
                "temperature": 2,
            }
        )
    assert plain == loaded
    first, second = model.requests
    assert [tool.name for tool in second.tools] == ["tool_browse", "tool_execute", "tool_view"]
    assert first == second


@requirement("ACCESS-1")
@pytest.mark.parametrize(
    ("authorization", "message"),
    [
        (None, "No credentials provided"),
        ("Basic b3duZXI6eA==", "No credentials provided"),
        ("Bearer", "No credentials provided"),
        ("Bearer wrong", "Invalid credentials"),
        ("Bearer " + "x" * 33_000, "No credentials provided"),
        (f"Bearer {SUSPENDED_KEY}", "Identity is suspended"),
    ],
)
async def test_without_a_valid_credential_the_answer_is_401(authorization: str | None, message: str) -> None:
    async with running_service() as service:
        del service.http.headers["Authorization"]
        headers = {"Authorization": authorization} if authorization else {}
        # The identity headers are what the middleware sets, so sending them is no credential.
        headers |= {"X-Actor-ID": "owner_1", "X-Actor-Permissions": "tools:*"}
        response = await service.http.post("/engine/chat", json=chat_body(), headers=headers)
    assert refusal(response, 401, "unauthorized") == message
    assert response.headers["www-authenticate"].startswith("Bearer")


@requirement("ACCESS-3")
async def test_cookies_are_no_credential_whatever_they_hold() -> None:
    async with running_service() as service:
        del service.http.headers["Authorization"]
        for cookie in ("a=%E0%A4%A", f"token={KEY}", f"authorization=Bearer {KEY}"):
            response = await service.http.post("/engine/chat", json=chat_body(), headers={"Cookie": cookie})
            refusal(response, 401, "unauthorized")


@requirement("CHAT-18", "CHAT-19", "CHAT-23")
async def test_wrong_methods_and_paths_are_refused_in_the_same_shape() -> None:
    async with running_service() as service:
        refusal(await service.http.get("/engine/chat"), 405, "method_not_allowed")
        refusal(await service.http.post("/engine/other", json=chat_body()), 404, "not_found")


@requirement("CHAT-20")
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_json_is_taken_for_json_whatever_it_is_called(content_type: str | None) -> None:
    async with running_service(ScriptModel(says("ok"))) as service:
        headers = {"Content-Type": content_type} if content_type else {}
        response = await service.http.post("/engine/chat", content=json.dumps(chat_body()), headers=headers)
    assert frames(response.text)[-1][0] == "done"


@requirement("CHAT-21")
async def test_a_body_over_the_limit_is_refused_whether_or_not_its_length_is_declared() -> None:
    async def endless() -> Any:
        for _ in range(64):
            yield b" " * 65_536

    async with running_service(settings={"server": {"max_body_bytes": 100_000}}) as service:
        declared = await service.http.post("/engine/chat", content=b" " * 20_000_000)
        chunked = await service.http.post("/engine/chat", content=endless())
    refusal(declared, 413, "payload_too_large")
    refusal(chunked, 413, "payload_too_large")


@requirement("CHAT-24")
async def test_a_correlation_header_that_contradicts_the_body_is_refused() -> None:
    async with running_service(ScriptModel(says("ok"))) as service:
        other = await service.http.post("/engine/chat", json=chat_body(), headers={"X-Correlation-ID": "req_2"})
        same = await service.http.post("/engine/chat", json=chat_body(), headers={"X-Correlation-ID": "req_1"})
    refusal(other, 400, "invalid_request")
    assert (same.status_code, same.headers["x-correlation-id"]) == (200, "req_1")
