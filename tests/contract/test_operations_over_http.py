"""The HTTP twin of the registry face (FACE-32 to FACE-34)."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.service import READER_KEY, FileServer, RunningService, running_service
from wicketgate.errors import UpstreamTimeout, UpstreamUnavailable
from wicketgate.ports import CallContext

AS_READER = {"Authorization": f"Bearer {READER_KEY}"}


class Files(FileServer):
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        if name == "slow":
            raise UpstreamTimeout("files did not answer within 1 s.")
        if name == "boom":
            raise UpstreamUnavailable("files is not connected.")
        return await super().call_tool(name, arguments, context, timeout_s)


@pytest.fixture
async def service() -> AsyncIterator[RunningService]:
    async with running_service(upstreams=[Files()]) as running:
        yield running


@requirement("FACE-33")
async def test_operations_are_found_and_described(service: RunningService) -> None:
    found = (await service.http.get("/operations", params={"query": "read", "limit": 1})).json()
    assert found["operations"][0]["name"] == "/files/read_file"
    every = (await service.http.get("/operations")).json()
    assert (every["total"], "next_cursor" in every) == (4, False)
    spec = (await service.http.get("/operations/schema", params={"name": "files/read_file"})).json()
    assert spec["input_schema"]["required"] == ["path"]


@requirement("FACE-33")
@pytest.mark.parametrize(
    ("operation", "given", "status", "code"),
    [
        ("/files/read_file", {"path": 7}, 422, "INVALID_INPUT"),
        ("/files/read_file", {}, 422, "INVALID_INPUT"),
        (None, {}, 422, "INVALID_INPUT"),
        ("/files/nope", {}, 404, "NOT_FOUND"),
        ("/files/fail", {}, 500, "MCP_TOOL_ERROR"),
        ("/files/slow", {}, 504, "TIMEOUT"),
        ("/files/boom", {}, 503, "UNAVAILABLE"),
    ],
)
async def test_each_failure_has_its_status_and_one_shape(
    service: RunningService, operation: str | None, given: dict[str, Any], status: int, code: str
) -> None:
    response = await service.http.post("/operations/call", json={"operation": operation, "input": given})
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert isinstance(response.json()["message"], str)
    assert ("Retry-After" in response.headers) == (status == 503)


@requirement("FACE-33")
async def test_a_call_answers_with_its_output_and_a_batch_with_each_end(service: RunningService) -> None:
    good = {"operation": "/files/read_file", "input": {"path": "a"}}
    assert (await service.http.post("/operations/call", json=good)).json() == "contents of a"
    batch = {"calls": [good, {"operation": "/files/fail"}]}
    response = await service.http.post("/operations/batch", json=batch, headers={"X-Correlation-ID": "req_7"})
    first, second = response.json()["results"]
    assert first == {"request_id": "req_7.1", "result": "ok", "output": "contents of a"}
    assert (second["request_id"], second["result"], second["error"]["code"]) == ("req_7.2", "error", "MCP_TOOL_ERROR")


@requirement("FACE-34", "ACCESS-13")
async def test_what_is_not_for_the_caller_is_not_there_by_any_of_the_four_ways(service: RunningService) -> None:
    assert (await service.http.get("/operations", headers=AS_READER)).json()["total"] == 1
    hidden, absent = "/files/fail", "/files/nope"
    for name in (hidden, absent):
        message = f"operation not found: {name}"
        for response in (
            await service.http.get("/operations/schema", params={"name": name}, headers=AS_READER),
            await service.http.post("/operations/call", json={"operation": name}, headers=AS_READER),
        ):
            assert (response.status_code, response.json()) == (
                404,
                {"code": "NOT_FOUND", "message": message, "retryable": False},
            )


async def test_what_utf_8_cannot_say_is_told_as_an_escape(service: RunningService) -> None:
    half = "files/\ud800"
    response = await service.http.post("/operations/call", content=json.dumps({"operation": half}))
    assert (response.status_code, response.json()["message"]) == (404, f"operation not found: {half}")
    several = {"calls": [{"operation": half}, {"operation": "files/odd"}, {"operation": "files/fail"}]}
    response = await service.http.post("/operations/batch", content=json.dumps(several))
    assert [item["result"] for item in response.json()["results"]] == 3 * ["error"]


@requirement("FACE-24")
async def test_a_cursor_of_ones_own_making_is_refused(service: RunningService) -> None:
    for made in (b"[" * 6_000, b"[1e400]", b'[-1,"",""]', b"null", b"\xff"):
        cursor = base64.urlsafe_b64encode(made).decode()
        response = await service.http.get("/operations", params={"cursor": cursor})
        assert (response.status_code, response.json()["code"]) == (422, "INVALID_INPUT")


@requirement("FACE-33")
async def test_a_caller_that_comes_too_often_is_told_when_to_come_back() -> None:
    async with running_service(upstreams=[Files()], settings={"quota": {"per_actor": 1}}) as service:
        for status in (500, 429):
            response = await service.http.post("/operations/call", json={"operation": "files/fail"})
            assert response.status_code == status
        assert 1 <= int(response.headers["Retry-After"]) <= 120


@requirement("FACE-33")
async def test_without_a_valid_credential_there_is_nothing(service: RunningService) -> None:
    for header in ("", "Basic x", "Bearer wrong"):
        response = await service.http.get("/operations", headers={"Authorization": header})
        assert (response.status_code, response.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"[" * 40_000])
async def test_a_body_that_is_no_object_is_refused(service: RunningService, body: bytes) -> None:
    for path in ("/operations/call", "/operations/batch"):
        response = await service.http.post(path, content=body)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
