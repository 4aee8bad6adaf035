"""What is refused before a stream opens, and in which shape (S3 "Pre-Stream Errors"; cases E01 to E29)."""

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
    ("E02", "not JSON", b"{bad"),
    ("E03", "an array", b"[]"),
    ("E03", "a string", b'"x"'),
    ("E03", "nothing", b""),
    ("E03", "null", b"null"),
    ("E04", "no messages", b"{}"),
    *(
        (case, name, json.dumps(body).encode())
        for case, name, body in [
            ("E05", "no message at all", with_messages([])),
            ("E06", "messages as text", with_messages("hi")),
            ("E06", "a message that is a number", with_messages([5])),
            ("E06", "no role", with_messages([{"content": "hi"}])),
            ("E06", "no content", with_messages([{"role": "user"}])),
            ("E07", "an unknown role", with_messages([{"role": "robot", "content": "hi"}])),
            ("E08", "content in parts", with_messages([{"role": "user", "content": [{"type": "text", "text": "x"}]}])),
            ("E08", "null content", with_messages([{"role": "user", "content": None}])),
            ("E10", "no metadata", {"messages": [USER]}),
            ("E11", "metadata as text", {"messages": [USER], "metadata": "x"}),
            ("E11", "metadata as a list", {"messages": [USER], "metadata": [1]}),
            ("E11", "empty metadata", {"messages": [USER], "metadata": {}}),
            ("E11", "an empty correlation id", chat_body(correlation_id="")),
            ("E11", "a number as correlation id", chat_body(correlation_id=7)),
            ("E11", "a correlation id with a line break", chat_body(correlation_id="req_1\n")),
            ("E12", "an unknown trigger", chat_body(trigger="cron")),
            ("E14", "a number as client context", chat_body(client_context=5)),
            ("E27", "a tool message that names no call", with_messages([USER, {"role": "tool", "content": "x"}])),
            (
                "E27",
                "a tool message that answers nothing",
                with_messages([USER, {"role": "tool", "content": "x", "tool_call_id": "c9"}]),
            ),
            (
                "E27",
                "a call without its result",
                with_messages([USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]),
            ),
            (
                "E27",
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
            ("E27", "tool calls of a user", with_messages([{**USER, "tool_calls": [CALL]}])),
        ]
    ),
]


@requirement("E02", "E03", "E04", "E05", "E06", "E07", "E08", "E10", "E11", "E12", "E14", "E27", "E29")
async def test_a_body_that_breaks_the_contract_is_refused_with_400_before_the_model_is_called() -> None:
    model = ScriptModel()
    async with running_service(model) as service:
        for case, name, body in BAD_BODIES:
            response = await service.http.post(
                "/engine/chat", content=body, headers={"Content-Type": "application/json"}
            )
            assert refusal(response, 400, "invalid_request"), (case, name)
    assert model.requests == []


@requirement("E04")
async def test_missing_messages_are_named() -> None:
    async with running_service() as service:
        response = await service.http.post("/engine/chat", json={})
    assert "messages array" in refusal(response, 400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(with_messages([{"role": "user", "content": ""}]), id="E09 empty content"),
        pytest.param(chat_body(client_context={"path": "/finances", "x": {}}), id="E14 client context"),
        pytest.param(with_messages([USER, {"role": "assistant", "content": "and?"}]), id="E28 assistant last"),
        pytest.param(with_messages([{"role": "system", "content": "be brief"}]), id="E28 system only"),
        pytest.param(
            with_messages(
                [
                    USER,
                    {"role": "assistant", "content": "", "tool_calls": [CALL]},
                    {"role": "tool", "content": "x", "tool_call_id": "c1"},
                ]
            ),
            id="E27 a call with its result",
        ),
    ],
)
@requirement("E09", "E14", "E27", "E28")
async def test_what_the_contract_allows_is_taken(body: dict[str, Any]) -> None:
    model = ScriptModel(says("ok"))
    async with running_service(model) as service:
        assert (await service.chat(body))[-1][0] == "done"
    assert [dict(message) for message in model.requests[0].messages] == body["messages"]


@requirement("E15")
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


@requirement("E16", "E17", "E18")
@pytest.mark.parametrize(
    ("authorization", "message"),
    [
        (None, "No credentials provided"),
        ("Basic b3duZXI6eA==", "No credentials provided"),
        ("Bearer", "No credentials provided"),
        ("Bearer wrong", "Invalid credentials"),
        ("Bearer " + "x" * 9_000, "No credentials provided"),
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


@requirement("E20", "E21")
async def test_cookies_are_no_credential_whatever_they_hold() -> None:
    async with running_service() as service:
        del service.http.headers["Authorization"]
        for cookie in ("a=%E0%A4%A", f"token={KEY}", f"authorization=Bearer {KEY}"):
            response = await service.http.post("/engine/chat", json=chat_body(), headers={"Cookie": cookie})
            refusal(response, 401, "unauthorized")


@requirement("E22", "E23", "E29")
async def test_wrong_methods_and_paths_are_refused_in_the_same_shape() -> None:
    async with running_service() as service:
        refusal(await service.http.get("/engine/chat"), 405, "method_not_allowed")
        refusal(await service.http.post("/engine/other", json=chat_body()), 404, "not_found")


@requirement("E24")
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_json_is_taken_for_json_whatever_it_is_called(content_type: str | None) -> None:
    async with running_service(ScriptModel(says("ok"))) as service:
        headers = {"Content-Type": content_type} if content_type else {}
        response = await service.http.post("/engine/chat", content=json.dumps(chat_body()), headers=headers)
    assert frames(response.text)[-1][0] == "done"


@requirement("E25")
async def test_a_body_over_the_limit_is_refused_whether_or_not_its_length_is_declared() -> None:
    async def endless() -> Any:
        for _ in range(64):
            yield b" " * 65_536

    async with running_service(settings={"server": {"max_body_bytes": 100_000}}) as service:
        declared = await service.http.post("/engine/chat", content=b" " * 20_000_000)
        chunked = await service.http.post("/engine/chat", content=endless())
    refusal(declared, 413, "payload_too_large")
    refusal(chunked, 413, "payload_too_large")


@requirement("S3 Conventions")
async def test_a_correlation_header_that_contradicts_the_body_is_refused() -> None:
    async with running_service(ScriptModel(says("ok"))) as service:
        other = await service.http.post("/engine/chat", json=chat_body(), headers={"X-Correlation-ID": "req_2"})
        same = await service.http.post("/engine/chat", json=chat_body(), headers={"X-Correlation-ID": "req_1"})
    refusal(other, 400, "invalid_request")
    assert (same.status_code, same.headers["x-correlation-id"]) == (200, "req_1")
