"""Host and Origin at every door of the service."""

import pytest

from tests.support.bare_port import exchange
from tests.support.requirement import requirement
from tests.support.service import KEY, chat_body, running_service

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@requirement("ACCESS-34", "FACE-3")
@pytest.mark.parametrize("host", ["evil.example", "localhost:1@evil.example"])
async def test_a_rebound_name_reaches_no_door(host: str) -> None:
    async with running_service(settings={"server": {"allowed_hosts": ["gate.example"]}}) as service:
        for path, body in (("/mcp", HELLO), ("/engine/chat", chat_body()), ("/operations/tool_browse", {})):
            refused = await service.http.post(path, json=body, headers={**ACCEPT, "Host": host})
            assert (refused.status_code, refused.json()["code"]) == (421, "misdirected_request")
            taken = await service.http.post(path, json=body, headers={**ACCEPT, "Host": "gate.example"})
            assert taken.status_code != 421
        for path in ("/metrics", "/openapi.json"):
            assert (await service.http.get(path, headers={"Host": host})).status_code == 421
        for path in ("/healthz", "/readyz"):
            assert (await service.http.get(path, headers={"Host": host})).status_code == 200


@requirement("ACCESS-34")
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example/tools", b"421"),
        ("http://localhost@evil.example/tools", b"421"),
        ("http://localhost:1/tools", b"401"),
        ("http://[::1]:1/tools", b"401"),
    ],
)
async def test_the_host_of_an_absolute_target_counts_in_place_of_the_header(target: str, status: bytes) -> None:
    async with running_service() as service:
        for host in ("localhost", "evil.example"):
            head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            answer = await exchange(service.http.base_url.port or 0, head)
            assert answer.startswith(status), answer


@requirement("ACCESS-35", "FACE-3")
async def test_a_foreign_page_reaches_no_door_and_one_that_is_listed_or_of_this_machine_does() -> None:
    async with running_service(settings={"server": {"allowed_origins": ["https://app.example"]}}) as service:
        headers = {**ACCEPT, "Authorization": f"Bearer {KEY}"}
        for path, body in (("/mcp", HELLO), ("/engine/chat", chat_body()), ("/operations/tool_browse", {})):
            foreign = await service.http.post(path, json=body, headers={**headers, "Origin": "https://evil.example"})
            assert foreign.status_code == 403
            for origin in ("https://app.example", "http://localhost:6274", "http://127.0.0.1", "http://[::1]:80"):
                let_in = await service.http.post(path, json=body, headers={**headers, "Origin": origin})
                assert let_in.status_code != 403
