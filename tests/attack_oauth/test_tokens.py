"""Tokens that are not what they look like, and strangers that use up what asks about them."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.access.test_issuers import GATE, Door, house
from tests.contract.test_oauth_door import service_of
from tests.contract.test_revocation import by
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.issuer import EC, RSA, Issuer
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, FileServer
from tests.support.until import until
from wicketgate.access import issuer as access
from wicketgate.access import issuers, key_sets
from wicketgate.access.identity import Identity
from wicketgate.access.issuer import Introspection

ASKING = Introspection("", "gate", "secret")


@requirement("ACCESS-231")
async def test_a_key_of_ours_with_a_slip_is_shown_to_no_issuer() -> None:
    """A key that was taken out of the configuration, or is misspelt, is still most of a secret of ours."""
    async with house(introspection=ASKING) as (issuer, door):
        assert await door.knock("wg_0123456789012345678901234567890123456789") == "unknown"
        assert not any(b"wg_" in request.body for request in issuer.requests)


@requirement("ACCESS-231", "ACCESS-119")
async def test_an_opaque_token_of_one_issuer_is_not_shown_to_another_and_gives_no_actor_of_it() -> None:
    async with Issuer() as first, Issuer() as second:
        door = Door(
            access.Issuer("first", first.url, introspection=replace(ASKING, prefix="one_")),
            access.Issuer("second", second.url, introspection=replace(ASKING, prefix="two_")),
        )
        first.clock = second.clock = door.clock
        second.opaque["two_token"] = second.claims(aud=f"{GATE}/mcp")
        # It vouches for everything, and says that it is the other.
        first.opaque["one_stolen"] = {**second.claims(aud=f"{GATE}/mcp"), "iss": second.url}
        first.opaque["one_token"] = first.claims(aud=f"{GATE}/mcp")
        try:
            assert isinstance(await door.knock("two_token"), Identity)
            assert await door.knock("three_token") == "unknown"
            assert first.requests == []
            assert second.seen.count("/introspect") == 1
            assert await door.knock("one_stolen") == "unknown"
            found = await door.knock("one_token")
            assert isinstance(found, Identity)
            assert found.actor == "first:ann"
        finally:
            await door.issuers.aclose()


@requirement("ACCESS-232")
async def test_strangers_with_made_up_tokens_do_not_keep_out_those_with_good_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the issuer answers slowly, who comes is told so in time, however many strangers wait before them."""
    monkeypatch.setattr(issuers, "DEADLINE_S", 1.0)
    async with house(introspection=ASKING) as (issuer, door):
        issuer.opaque["good"] = issuer.claims(aud=f"{GATE}/mcp")
        assert isinstance(await door.knock("good"), Identity)
        issuer.opaque["good-2"] = issuer.claims(aud=f"{GATE}/mcp", jti="2")
        issuer.gate.clear()
        strangers = [asyncio.create_task(door.knock(f"stranger-{number}")) for number in range(16 * 8)]
        await asyncio.sleep(0)
        good = asyncio.create_task(door.knock("good-2"))
        try:
            async with asyncio.timeout(BOUND_S):
                await good
            asked = sum(request.target == "/introspect" for request in issuer.requests)
            assert asked <= 1 + 2 * 16, f"{asked - 1} strangers had their time first"
        finally:
            for task in (*strangers, good):
                task.cancel()
            await asyncio.gather(*strangers, good, return_exceptions=True)


@pytest.mark.parametrize("age_s", [301, 601])
@requirement("ACCESS-112", "ACCESS-233")
async def test_old_keys_serve_while_the_issuer_takes_its_time(monkeypatch: pytest.MonkeyPatch, age_s: int) -> None:
    """Keys serve for a day while the issuer is away: one that accepts connections and says nothing is away too."""
    monkeypatch.setattr(key_sets, "DEADLINE_S", 3_600.0)
    async with house() as (issuer, door):
        assert isinstance(await door.knock(issuer.token()), Identity)
        asked = len(issuer.requests)
        door.clock.now += age_s
        issuer.gate.clear()
        async with asyncio.timeout(BOUND_S):
            for number in range(20):
                assert isinstance(await door.knock(issuer.token(jti=str(number))), Identity)
                door.clock.now += 1
            await until(lambda: len(issuer.requests) > asked)
        assert len(issuer.requests) == asked + 1


@requirement("ACCESS-112", "ACCESS-233")
async def test_keys_in_use_are_renewed_before_they_are_old() -> None:
    async with house() as (issuer, door):
        assert isinstance(await door.knock(issuer.token()), Identity)
        issuer.keys = [EC]
        door.clock.now += 301
        # The first token that comes has the keys renewed, and waits for nothing.
        assert isinstance(await door.knock(issuer.token(jti="2")), Identity)
        await until(lambda: door.issuers.states()[0].keys == 1)
        assert await door.knock(issuer.token(jti="3")) == "token_refused"


@requirement("ACCESS-232")
async def test_who_finds_the_queue_full_is_told_at_once() -> None:
    async with house(introspection=ASKING) as (issuer, door):
        issuer.gate.clear()
        most = issuers.MOST_WAITING
        networks = ["10.0.0.1", "10.0.0.2"] * (most // 2) + ["10.0.0.3"]
        strangers = [asyncio.create_task(door.knock(f"s-{n}", source=of)) for n, of in enumerate(networks)]
        try:
            async with asyncio.timeout(BOUND_S):
                done, waiting = await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)
            assert [each.result() for each in done] == ["issuer_away"]
            assert len(waiting) == most
        finally:
            for task in strangers:
                task.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)


@requirement("ACCESS-290")
async def test_strangers_of_one_network_leave_half_of_the_places_to_others() -> None:
    async with house(introspection=ASKING) as (issuer, door):
        issuer.opaque["first"] = issuer.opaque["ann"] = issuer.claims(aud=f"{GATE}/mcp")
        assert isinstance(await door.knock("first"), Identity)
        before = len(issuer.requests)
        issuer.gate.clear()
        share = issuers.MOST_WAITING // 2
        strangers = [asyncio.create_task(door.knock(f"s-{n}", source=f"2001:db8::{n:x}")) for n in range(share + 1)]
        try:
            async with asyncio.timeout(BOUND_S):
                done, _ = await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)
                assert [each.result() for each in done] == ["issuer_away"]
                ann = asyncio.create_task(door.knock("ann", source="10.0.0.1"))
                while not any(b"token=ann&" in request.body for request in issuer.requests):
                    await asyncio.sleep(0)
                # Those before her are all that the strangers may have asked at once.
                assert len(issuer.requests) - before <= issuers._MOST_AT_ONCE // 2 + 1
                issuer.gate.set()
                assert isinstance(await ann, Identity)
        finally:
            for task in strangers:
                task.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)


PATHS = (
    "/mcp/registry/",
    "//mcp/registry",
    "/mcp//registry",
    "/mcp/registry/x",
    "/MCP/registry",
    "/mcp/%72egistry",
    "/mcp/registry%2F",
    "/mcp/registry;x",
    "/mcp/./registry",
    "/mcp/gateway/../registry",
    "/operations/../mcp/registry",
    "/engine/../mcp/registry",
)


@requirement("ACCESS-117")
async def test_no_spelling_of_a_path_takes_a_token_to_another_face() -> None:
    init = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    async with Issuer() as issuer, service_of(issuer, None, [FileServer()]) as (service, _):
        host, port = service.url.removeprefix("http://").split(":")
        opened = []
        for aud in ("/console", "/operations", "/engine/chat", "/mcp"):
            token = issuer.token(aud=GATE + aud)
            for path in PATHS:
                status = await raw(host, int(port), path, token, init)
                if status == 200:
                    opened.append((aud, path))
        assert opened == []


async def raw(host: str, port: int, path: str, token: str, body: Any) -> int:
    """POST with the request target as it is written."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
        + data
    )
    await writer.drain()
    async with asyncio.timeout(BOUND_S):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@requirement("ACCESS-43", "ACCESS-110")
async def test_only_one_header_carries_a_token_in_any_case_of_its_scheme() -> None:
    async with Issuer() as issuer, service_of(issuer, None, [FileServer()]) as (service, _):
        token = issuer.token(aud="gate")
        for scheme in ("bearer", "BEARER", "Bearer "):
            found = await service.http.get("/operations", headers={"Authorization": f"{scheme} {token}"})
            assert found.status_code == 200, scheme
        for headers in (
            [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")],
            [("Authorization", f"Bearer {token}"), ("Authorization", "Basic eA==")],
            [("Authorization", f"Bearer {token}, Bearer x")],
            [("Authorization", f"Token {token}")],
            [("Authorization", f"DPoP {token}")],
            [("X-Authorization", f"Bearer {token}")],
            [("Proxy-Authorization", f"Bearer {token}")],
            [("Cookie", f"access_token={token}")],
        ):
            refused = await service.http.get("/operations", headers=headers)
            assert refused.status_code == 401, headers
        for query in (f"access_token={token}", f"token={token}", f"authorization=Bearer%20{token}"):
            refused = await service.http.get(f"/operations?{query}")
            assert refused.status_code == 401
            assert token not in refused.text and token not in str(refused.headers)
        form = await service.http.post("/operations/call", data={"access_token": token})
        assert form.status_code == 401


@requirement("ACCESS-116")
async def test_claims_of_odd_shapes_are_no_500() -> None:
    odd: list[dict[str, Any]] = [
        {"scope": {"a": 1}},
        {"scope": [["tools"], 7, "x"]},
        {"scp": 7},
        {"roles": {"admin": True}},
        {"realm_access": "admin"},
        {"realm_access": {"roles": [None, {"x": 1}, "\ud800"]}},
        {"sub": "\ud800\u202e<script>"},
        {"sub": "a" * 5_000},
        {"sub": "../../etc/passwd"},
        {"sub": "ann\r\nX-Actor-ID: root"},
        {"sub": "\u0430nn"},  # a Cyrillic letter
        {"department": {"deep": [[[[[[1]]]]]]}},
        {"aud": [f"{GATE}/operations", "\ud800"]},
        {"exp": 1.8e9 + 300.5},
    ]
    async with Issuer() as issuer, service_of(issuer, None, [FileServer()], roles="realm_access.roles") as (service, _):
        for claims in odd:
            token = issuer.token(**{"aud": f"{GATE}/console", **claims})
            found = await service.http.get("/console/api/me", headers=by(token))
            assert found.status_code in (200, 401), (claims, found.status_code)
            if found.status_code == 200:
                actor = found.json()["actor"]
                assert actor.startswith("corp:") and len(actor) <= 128, claims
                assert (actor == "corp:ann") == ("sub" not in claims), claims


@requirement("ACCESS-112")
@pytest.mark.parametrize("where", ["other origin", "own origin", "file"])
async def test_a_key_set_that_moved_elsewhere_is_not_followed_there(where: str) -> None:
    """Redirects of jwks_uri stay within the origin."""
    async with Issuer() as evil:

        async def answer(seen: Seen) -> Reply:
            if seen.target == "/keys-2":
                return Reply(json.dumps({"keys": [RSA.as_dict(private=False)]}).encode())
            to = {"other origin": f"{evil.url}/keys", "own origin": "/keys-2", "file": "file:///etc/passwd"}[where]
            return Reply(b"", 302, {"location": to})

        async with HttpService(answer) as moved, Issuer() as issuer:
            door = Door(access.Issuer("corp", issuer.url, jwks_uri=f"{moved.url}/keys"))
            issuer.clock = door.clock
            try:
                found = await door.knock(issuer.token())
            finally:
                await door.issuers.aclose()
            assert isinstance(found, Identity) == (where == "own origin")
            if where != "own origin":
                assert found == "issuer_away"
            assert evil.seen == []
