"""Pages of named origins call every door from a browser: its preflight has no credential (CORS)."""

from typing import Any

import pytest

from tests.contract.test_mcp_door import INITIALIZE
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import FileServer, chat_body, running_service

PAGE = "https://app.example"
NAMED: dict[str, Any] = {"server": {"allowed_origins": [PAGE, "http://localhost:*"]}}
DOORS = ["/engine/chat", "/mcp", "/mcp/namespaced", "/operations/call", "/readyz"]

# As Chrome sends them: it never sends a credential with a preflight.
PREFLIGHT = {
    "Accept": "*/*",
    "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-session-id",
    "Access-Control-Request-Method": "POST",
    "Origin": PAGE,
    "Sec-Fetch-Mode": "cors",
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Dest": "empty",
    "Referer": f"{PAGE}/",
    "Authorization": "",
}
CROSS_SITE = {"Origin": PAGE, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site", "Referer": f"{PAGE}/"}


@requirement("ACCESS-35", "FACE-59")
async def test_a_preflight_of_a_named_origin_is_answered_at_every_door_before_the_key_is_asked_for() -> None:
    async with running_service(settings=NAMED) as service:
        for door in DOORS:
            answer = await service.http.options(door, headers=PREFLIGHT)
            assert answer.status_code == 204, (door, answer.text)
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert answer.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            assert {"GET", "POST", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
            assert "access-control-allow-credentials" not in answer.headers
            assert "origin" in answer.headers["vary"].lower()
        local = await service.http.options("/mcp", headers={**PREFLIGHT, "Origin": "http://localhost:6274"})
        assert local.headers["access-control-allow-origin"] == "http://localhost:6274"


@requirement("FACE-59")
async def test_a_page_of_a_named_origin_reads_answers_and_the_headers_that_it_needs() -> None:
    model = ScriptModel(says("ok"))
    accept = {"Accept": "application/json, text/event-stream"}
    async with running_service(model, [FileServer()], settings=NAMED) as service:
        opened = await service.http.post("/mcp", json=INITIALIZE, headers={**CROSS_SITE, **accept})
        chat = await service.http.post("/engine/chat", json=chat_body(), headers=CROSS_SITE)
        found = await service.http.get("/operations", headers=CROSS_SITE)
        keyless = await service.http.post("/mcp", json=INITIALIZE, headers={**CROSS_SITE, "Authorization": ""})
    answers = (opened, chat, found, keyless)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 401]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        exposed = {name.lower() for name in answer.headers["access-control-expose-headers"].split(", ")}
        assert {"mcp-session-id", "retry-after", "www-authenticate", "x-correlation-id"} <= exposed
    assert opened.headers["mcp-session-id"]


@requirement("FACE-59")
@pytest.mark.parametrize("settings", [{}, NAMED], ids=["none by default", "others named"])
async def test_no_other_page_is_let_read_anything(settings: dict[str, Any]) -> None:
    origin = "https://evil.example"
    async with running_service(settings=settings) as service:
        preflight = await service.http.options("/mcp", headers={**PREFLIGHT, "Origin": origin})
        asked = await service.http.post("/mcp", json=INITIALIZE, headers={**CROSS_SITE, "Origin": origin})
        bare = await service.http.get("/operations")
        foreign_host = await service.http.options("/mcp", headers={**PREFLIGHT, "Host": "evil.example"})
    assert (preflight.status_code, asked.status_code, bare.status_code) == (403, 403, 200)
    assert foreign_host.status_code == 421
    for answer in (preflight, asked, bare, foreign_host):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@requirement("FACE-59")
async def test_without_named_origins_a_page_of_this_machine_is_taken_but_may_read_nothing() -> None:
    page = {"Origin": "http://localhost:6274"}
    async with running_service() as service:
        preflight = await service.http.options("/mcp", headers={**PREFLIGHT, **page})
        found = await service.http.get("/operations", headers=page)
    assert (preflight.status_code, found.status_code) == (401, 200)
    for answer in (preflight, found):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@requirement("FACE-59")
async def test_headers_that_are_no_names_are_not_repeated() -> None:
    odd = {**PREFLIGHT, "Access-Control-Request-Headers": "authorization, a b, mcp-param-x-city,(x)"}
    async with running_service(settings=NAMED) as service:
        answer = await service.http.options("/mcp", headers=odd)
    assert answer.headers["access-control-allow-headers"] == "authorization,mcp-param-x-city"
