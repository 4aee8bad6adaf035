"""Every door takes tokens of issuers, says how to get one, and ends what a token started at its end (ACCESS-110 to
ACCESS-143)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.contract.test_mcp_door import INITIALIZE
from tests.contract.test_revocation import LISTEN, by, listening_chat, operation, rest, until_running
from tests.contract.test_tool_calls import IDS, execute
from tests.support.clock import Clock
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.issuer import OTHER_RSA, Issuer
from tests.support.mcp_client import ERAS, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import (
    BOUND_S,
    KEY,
    OPERATOR_KEY,
    FileServer,
    RunningService,
    chat_body,
    frames,
    running_service,
)
from tests.support.until import until
from wicketgate.access.signed_headers import sign
from wicketgate.config.settings import Settings
from wicketgate.models.provider import TextDelta

pytestmark = pytest.mark.usefixtures("both_ways")

GATE = "https://gate.example"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
SECRET = "0123456789abcdef0123456789abcdef"


def configured(*issuers: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"server": {"public_url": GATE}, "auth": {"issuers": list(issuers), **more}}


@asynccontextmanager
async def service_of(
    issuer: Issuer, *arguments: Any, auth: Mapping[str, Any] | None = None, **section: Any
) -> AsyncIterator[tuple[RunningService, Clock]]:
    clock = Clock(1_800_000_000.0)
    issuer.clock = clock
    entry = {"name": "corp", "issuer": issuer.url, "audience": ["{resource}", "gate"], **section}
    async with running_service(*arguments, settings=configured(entry, **(auth or {})), clock=clock) as service:
        del service.http.headers["authorization"]
        yield service, clock


@ERAS
@requirement("ACCESS-110", "ACCESS-117", "FACE-179")
async def test_a_client_of_each_era_calls_a_tool_with_a_token_and_none_with_that_of_another_face(mode: str) -> None:
    async with Issuer() as issuer, service_of(issuer, None, [FileServer()]) as (service, _):
        async with mcp_client(service, mode, issuer.token()) as client:
            found = await client.call_tool("tool_execute", {"tool_id": IDS["read_file"], "args": {"path": "a"}})
            assert not found.is_error
        async with mcp_client(service, mode, KEY) as client:
            assert not (await client.call_tool("tool_browse", {"path": "/"})).is_error
        for path in ("/mcp/registry", "/mcp/namespaced", "/engine/chat", "/operations/call"):
            refused = await service.http.post(path, json={}, headers=by(issuer.token()))
            assert (refused.status_code, refused.json()["message"]) == (401, "The token is for another resource"), path
        async with mcp_client(service, mode, issuer.token(), path="/mcp?tools=all&x=") as client:
            assert "files__read_file" in [tool.name for tool in (await client.list_tools()).tools]


@requirement("ACCESS-130", "ACCESS-131")
async def test_each_face_has_its_document_and_the_root_is_that_of_the_main_face() -> None:
    async with Issuer() as issuer:
        options: dict[str, Any] = {"scopes": ["mcp"], "permissions": [{"scope": "tools.read", "grant": ["tools:*"]}]}
        async with service_of(issuer, **options) as (service, _):
            for path, resource in {
                "": "/mcp",
                "/mcp": "/mcp",
                "/mcp/gateway": "/mcp/gateway",
                "/mcp/registry": "/mcp/registry",
                "/engine/chat": "/engine/chat",
                "/operations": "/operations",
            }.items():
                found = await service.http.get(WELL_KNOWN + path, headers={"Host": "localhost"})
                assert found.status_code == 200, path
                assert found.json() == {
                    "resource": GATE + resource,
                    "authorization_servers": [issuer.url],
                    "bearer_methods_supported": ["header"],
                    "resource_name": "Wicketgate",
                    "scopes_supported": ["mcp", "tools.read"],
                }
            for path in (
                *(f"{WELL_KNOWN}/{name}" for name in ("evil", "mcp/evil", "mcp/", "../mcp")),
                f"{WELL_KNOWN}x",
                "/.well-known/oauth-authorization-server",
                "/.well-known/openid-configuration",
                "/.well-known/",
            ):
                missing = await service.http.get(path)
                assert (missing.status_code, missing.json()["code"]) == (404, "not_found"), path
                assert "www-authenticate" not in missing.headers
            for path in ("/register", "/token", "/authorize"):
                assert (await service.http.get(path, headers=by(KEY))).status_code == 404
    async with running_service() as service:
        assert (await service.http.get(WELL_KNOWN)).status_code == 404


def parts(challenge: str) -> dict[str, str]:
    assert challenge.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', challenge))


@requirement("ACCESS-132")
async def test_a_refusal_says_where_to_get_a_token_and_blames_one_only_if_it_came() -> None:
    async with Issuer() as issuer, service_of(issuer, scopes=["mcp", "tools"]) as (service, _):
        evil = {"Host": "localhost", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
        for path in ("/mcp", "/mcp/registry", "/engine/chat", "/operations"):
            none = await service.http.post(path, json={}, headers=evil)
            assert none.status_code == 401
            where = {"realm": "wicketgate", "scope": "mcp tools", "resource_metadata": f"{GATE}{WELL_KNOWN}{path}"}
            assert parts(none.headers["www-authenticate"]) == where
            wrong = await service.http.post(path, json={}, headers={**evil, **by(issuer.token(OTHER_RSA))})
            assert parts(wrong.headers["www-authenticate"]) == {**where, "error": "invalid_token"}
            # Each part is found where the challenge says.
            document = await service.http.get(where["resource_metadata"].removeprefix(GATE))
            assert document.json()["resource"] == GATE + path
        # All scopes of the request at once.
        few = await service.http.post("/mcp", json={}, headers=by(issuer.token(scope="mcp")))
        assert (few.status_code, few.json()["code"]) == (403, "insufficient_scope")
        assert parts(few.headers["www-authenticate"]) == {
            "realm": "wicketgate",
            "error": "insufficient_scope",
            "scope": "mcp tools",
            "resource_metadata": f"{GATE}{WELL_KNOWN}/mcp",
        }
    async with running_service() as service:
        plain = await service.http.get("/operations", headers=by("x"))
        assert plain.headers["www-authenticate"] == 'Bearer realm="wicketgate"'


@requirement("ACCESS-133")
async def test_a_permission_that_a_scope_could_give_is_asked_for_by_that_scope() -> None:
    permissions = [{"grant": ["tools:*"]}, {"scope": "ops", "grant": ["ops:*"]}, {"role": "r", "grant": ["ops:write"]}]
    async with Issuer() as issuer, service_of(issuer, scopes=["base"], permissions=permissions) as (service, _):
        token = issuer.token(aud="gate", scope="base")
        for path in ("/metrics", "/console/api/servers"):
            few = await service.http.get(path, headers=by(token))
            assert (few.status_code, few.json()["code"]) == (403, "insufficient_scope"), path
            challenge = parts(few.headers["www-authenticate"])
            assert (challenge["error"], challenge["scope"]) == ("insufficient_scope", "base ops")
        ops = by(issuer.token(aud="gate", scope="base ops"))
        assert (await service.http.get("/metrics", headers=ops)).status_code == 200
        by_key = await service.http.get("/metrics", headers=by(KEY))
        assert (by_key.status_code, by_key.json()["code"]) == (403, "forbidden")
        assert "www-authenticate" not in by_key.headers


@requirement("ACCESS-113", "ACCESS-134")
async def test_an_issuer_that_is_away_is_503_and_told_to_operators_while_keys_work() -> None:
    async with Issuer() as issuer, service_of(issuer) as (service, clock):
        issuer.away = True
        for path in ("/mcp", "/engine/chat", "/operations"):
            away = await service.http.post(path, json={}, headers=by(issuer.token(aud="gate")))
            assert (away.status_code, away.json()["code"]) == (503, "issuer_unavailable")
            assert away.headers["retry-after"] == "2"
            assert "www-authenticate" not in away.headers and issuer.url not in away.text
        assert (await service.http.get("/operations", headers=by(KEY))).status_code == 200
        # Readiness says it, and needs no credential itself.
        assert (await service.http.get("/readyz", headers=by(issuer.token(aud="gate")))).json() == {"ready": True}
        told = (await service.health())["issuers"]["corp"]
        assert (told["issuer"], told["keys"]) == (issuer.url, None)
        assert "503" in told["away"]
        issuer.away = False
        await until_issuer_is_asked_again(service, issuer)
        told = (await service.health())["issuers"]["corp"]
        assert (told["keys"], told["away"]) == (2, "")
        metrics = await service.metrics()
        assert 'wicketgate_auth_failures_total{reason="issuer_away"}' in metrics
        assert clock.now


async def until_issuer_is_asked_again(service: RunningService, issuer: Issuer) -> None:
    await until(
        lambda: service.http.get("/operations", headers=by(issuer.token(aud="gate"))),
        lambda answer: answer.status_code != 503,
    )


@requirement("ACCESS-122", "CHAT-92")
async def test_a_stream_ends_with_its_token_and_that_of_a_newer_one_goes_on() -> None:
    go_on = asyncio.Event()
    turn = [[TextDelta("one")], go_on, *says("two")]
    async with Issuer() as issuer, service_of(issuer, ScriptModel(turn, turn, turn)) as (service, clock):
        _, short = await listening_chat(service, issuer.token(aud="gate", exp=clock.now + 60))
        _, longer = await listening_chat(service, issuer.token(aud="gate", exp=clock.now + 600))
        _, key = await listening_chat(service, KEY)
        clock.now += 60
        ends = await rest(short)
        go_on.set()
        others = [await rest(longer), await rest(key)]
    assert [(event, data["finish_reason"]) for event, data in ends] == [("done", "cancelled")]
    assert [[event for event, _ in each] for each in others] == [["text-delta", "done"]] * 2


@requirement("ACCESS-122")
async def test_a_call_under_way_ends_with_its_token() -> None:
    files = FileServer()
    async with Issuer() as issuer, service_of(issuer, None, [files]) as (service, clock):
        calling = asyncio.create_task(operation(service, issuer.token(aud="gate", exp=clock.now + 60)))
        other = asyncio.create_task(operation(service, issuer.token(aud="gate", exp=clock.now + 600)))
        await until_running(files, 2)
        clock.now += 60
        refused = await calling
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        files.release.set()
        assert (await other).status_code == 200
        late = await operation(service, issuer.token(aud="gate", exp=clock.now - 31))
    assert refused.status_code == 401 and "no longer valid" in refused.json()["message"]
    assert parts(refused.headers["www-authenticate"])["error"] == "invalid_token"
    assert (late.status_code, late.json()["message"]) == (401, "Credentials have expired")


@requirement("ACCESS-123")
async def test_a_session_goes_on_with_a_newer_token_of_its_caller_and_of_nobody_else() -> None:
    async with Issuer() as issuer, service_of(issuer, None, [FileServer()]) as (service, clock):
        first = issuer.token(exp=clock.now + 60)
        opened = await service.http.post("/mcp", json=INITIALIZE, headers={**LISTEN, **by(first)})
        session = {**LISTEN, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        listening = service.http.build_request("GET", "/mcp", headers={**session, **by(first)})
        stream = await service.http.send(listening, stream=True)
        assert stream.status_code == 200
        clock.now += 90
        async with asyncio.timeout(BOUND_S):
            assert b"".join([piece async for piece in stream.aiter_bytes()]) is not None  # it ends
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await service.http.post("/mcp", json=ping, headers={**session, **by(first)})).status_code == 401
        newer = await service.http.post("/mcp", json=ping, headers={**session, **by(issuer.token(jti="2"))})
        assert newer.status_code == 200
        for other in (issuer.token(sub="bob"), KEY):
            foreign = await service.http.post("/mcp", json=ping, headers={**session, **by(other)})
            assert foreign.status_code == 404


@requirement("ACCESS-124")
async def test_a_run_with_a_key_outlives_its_token_and_is_read_with_a_newer_one() -> None:
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *calls(execute("c1", "read_file", {"path": "a"}))], says("two"))
    keyed = {"Idempotency-Key": "k1", "X-On-Disconnect": "continue"}
    async with Issuer() as issuer, service_of(issuer, model, [FileServer()]) as (service, clock):
        _, first = await listening_chat(service, issuer.token(aud="gate", exp=clock.now + 60), **keyed)
        clock.now += 90
        ends = await rest(first)
        assert [(event, data["finish_reason"]) for event, data in ends] == [("done", "cancelled")]
        newer = by(issuer.token(aud="gate", jti="2"))
        again = asyncio.create_task(service.http.post("/engine/chat", json=chat_body(), headers={**newer, **keyed}))
        go_on.set()
        whole = frames((await again).text)
        assert [event for event, _ in whole] == ["text-delta", "tool-call", "tool-result", "text-delta", "done"]
        assert whole[-1][1]["finish_reason"] == "stop"
        # Neither a stranger's token nor a key reaches the run.
        bob = await service.http.post(
            "/engine/chat", json=chat_body(), headers={**by(issuer.token(aud="gate", sub="bob")), **keyed}
        )
        assert "error" in bob.text
    assert len(model.requests) == 3


@requirement("ACCESS-124")
async def test_what_tokens_started_ends_with_their_issuer() -> None:
    files = FileServer()
    model = ScriptModel([[TextDelta("one")], *calls(execute("c1", "slow"))])
    keyed = {"Idempotency-Key": "k1", "X-On-Disconnect": "continue"}
    async with Issuer() as issuer, service_of(issuer, model, [files]) as (service, _):
        token = issuer.token(aud="gate")
        response, _rest = await listening_chat(service, token, **keyed)
        await until_running(files)
        await response.aclose()
        await service.app.state.gate.apply(Settings.model_validate({"server": {"public_url": GATE}}))
        async with asyncio.timeout(BOUND_S):
            await files.slow_cancelled.wait()
        gone = await service.http.get("/operations", headers=by(token))
        assert (gone.status_code, gone.headers["www-authenticate"]) == (401, 'Bearer realm="wicketgate"')


@requirement("ACCESS-121")
async def test_rules_read_roles_and_claims() -> None:
    rules = [
        {"match": "files:read_file", "when": "has(claims.unit) && claims.unit == 'finance'"},
        {"match": "files:slow", "when": "'admin' in roles"},
        {"match": "files:fail", "when": "has(claims.unit) && args.path == claims.unit", "effect": "allow"},
        {"match": "files:*", "effect": "deny"},
    ]
    async with Issuer() as issuer:
        entry = {"name": "corp", "issuer": issuer.url, "audience": ["gate"], "roles": "claims.roles"}
        settings = {**configured(entry), "access": rules}
        async with running_service(None, [FileServer()], settings=settings) as service:

            async def listed(**claims: Any) -> set[str]:
                found = await service.http.get("/operations", headers=by(issuer.token(aud="gate", **claims)))
                return {each["name"].removeprefix("/files/") for each in found.json()["operations"]}

            # A rule on arguments shows the tool to whoever may find that it holds.
            assert await listed() == {"fail"}
            assert await listed(unit="finance") == {"read_file", "fail"}
            assert await listed(unit="it", roles=["admin", "x"]) == {"slow", "fail"}
            by_key = await service.http.get("/operations")
            assert [each["name"] for each in by_key.json()["operations"]] == ["/files/fail"], "it has no claims"


@requirement("ACCESS-135")
async def test_the_credential_of_a_caller_goes_to_no_server() -> None:
    """The token stops at the door: neither a server nor a model is given it, in whatever form."""
    spec = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {"/it": {"get": {"operationId": "it", "responses": {"200": {"description": "ok"}}}}},
    }

    def answer(seen: Seen) -> Reply:
        return Reply(json.dumps(spec).encode() if seen.target == "/openapi.json" else b"{}")

    async with Issuer() as issuer, HttpService(answer) as upstream:
        entry = {"name": "corp", "issuer": issuer.url, "audience": ["gate"]}
        settings = {
            **configured(entry),
            "upstreams": [{"name": "svc", "openapi": f"{upstream.url}/openapi.json", "base_url": upstream.url}],
        }
        async with running_service(None, None, settings=settings) as service:
            token = issuer.token(aud="gate")
            called = await service.http.post(
                "/operations/call", json={"operation": "svc/it", "input": {}}, headers=by(token)
            )
            assert called.status_code == 200, called.text
        assert any(seen.target == "/it" for seen in upstream.seen)
        for seen in upstream.seen:
            assert "authorization" not in seen.headers
            assert not any(name.startswith("x-actor") for name in seen.headers)
            assert token not in repr((seen.headers, seen.target, seen.body))


@requirement("ACCESS-118")
async def test_tokens_with_many_groups_are_read() -> None:
    async with Issuer() as issuer, service_of(issuer) as (service, _):
        token = issuer.token(aud="gate", groups=[f"group-{number:05}" for number in range(1_400)])
        assert 24_000 < len(token) < 32 * 1024
        assert (await service.http.get("/operations", headers=by(token))).status_code == 200
        longer = issuer.token(aud="gate", groups=[f"group-{number:05}" for number in range(2_000)])
        assert (await service.http.get("/operations", headers=by(longer))).status_code in (401, 431)


GATEWAY = {"addresses": ["127.0.0.0/8"], "secrets": [SECRET], "permissions": ["tools:*", "ops:read"]}


def headers_of(
    clock: Clock,
    actor: str = "ann",
    permissions: str = "tools:*,ops:read",
    *,
    secret: str = SECRET,
    method: str = "GET",
    target: str = "/operations",
    at: float = 0,
) -> dict[str, str]:
    signature = sign(secret.encode(), int(clock.now + at), method, target, actor, permissions)
    return {"X-Actor-ID": actor, "X-Actor-Permissions": permissions, "X-Actor-Signature": signature}


@requirement("ACCESS-140", "ACCESS-141")
async def test_signed_headers_of_the_gateway_in_front_are_an_identity() -> None:
    clock = Clock(1_800_000_000.0)
    settings = {"auth": {"trusted_headers": GATEWAY}}
    async with running_service(None, [FileServer()], settings=settings, clock=clock) as service:
        del service.http.headers["authorization"]
        assert (await service.http.get("/operations", headers=headers_of(clock))).status_code == 200
        assert (await service.http.get("/metrics", headers=headers_of(clock, target="/metrics"))).status_code == 200
        queried = headers_of(clock, target="/operations?limit=1", at=-60)
        assert (await service.http.get("/operations?limit=1", headers=queried)).status_code == 200
        # No more than was agreed.
        few = await service.http.get("/metrics", headers=headers_of(clock, permissions="*", target="/metrics"))
        assert few.status_code == 403


@pytest.mark.parametrize(
    "fault",
    [
        "secret",
        "method",
        "target",
        "actor",
        "permissions",
        "old",
        "early",
        "twice",
        "spelling",
        "missing",
        "form",
        "empty",
    ],
)
@requirement("ACCESS-142")
async def test_headers_that_the_gateway_did_not_sign_so_are_refused(fault: str) -> None:
    clock = Clock(1_800_000_000.0)
    settings = {"auth": {"trusted_headers": GATEWAY}}
    async with running_service(settings=settings, clock=clock) as service:
        del service.http.headers["authorization"]
        changes: dict[str, dict[str, Any]] = {
            "secret": {"secret": SECRET[::-1]},
            "method": {"method": "POST"},
            "target": {"target": "/operations?x=1"},
            "old": {"at": -61},
            "early": {"at": 61},
            "empty": {"actor": ""},
        }
        sent = list(headers_of(clock, **changes.get(fault, {})).items())
        match fault:
            case "actor":
                sent[0] = ("X-Actor-ID", "root")
            case "permissions":
                sent[1] = ("X-Actor-Permissions", "ops:read")
            case "twice":
                sent.append(("X-Actor-ID", "root"))
            case "spelling":
                sent.append(("X_Actor_ID", "root"))
            case "missing":
                del sent[1]
            case "form":
                sent[2] = ("X-Actor-Signature", sent[2][1].replace("v1=", "v0="))
        refused = await service.http.get("/operations", headers=sent)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        # Nor does a good key help: the gateway's word and the key would be two callers.
        both = await service.http.get("/operations", headers=[*sent, ("Authorization", f"Bearer {KEY}")])
        assert both.status_code == 401


@requirement("ACCESS-143")
async def test_signed_headers_count_only_where_configured_and_from_those_addresses() -> None:
    clock = Clock(1_800_000_000.0)
    elsewhere = {"auth": {"trusted_headers": {**GATEWAY, "addresses": ["10.0.0.0/8"]}}}
    behind = {**elsewhere, "server": {"trusted_proxies": ["127.0.0.1"]}}
    for settings in ({}, elsewhere, behind):
        async with running_service(settings=settings, clock=clock) as service:
            claimed = {**headers_of(clock), "X-Forwarded-For": "10.0.0.7"}
            by_key = await service.http.get("/operations", headers=claimed)
            assert by_key.status_code == 200, "the headers are removed, and the key counts"
            del service.http.headers["authorization"]
            refused = await service.http.get("/operations", headers=claimed)
            assert (refused.status_code, refused.json()["message"]) == (401, "No credentials provided")


@requirement("ACCESS-120")
async def test_signed_callers_and_callers_with_tokens_and_keys_are_never_one_actor() -> None:
    async with Issuer() as issuer, service_of(issuer, auth={"trusted_headers": GATEWAY}) as (service, clock):
        seen: list[str] = []
        for headers in (headers_of(clock, target="/console/api/me"), by(issuer.token(aud="gate")), by(OPERATOR_KEY)):
            seen.append((await service.http.get("/console/api/me", headers=headers)).json()["actor"])
        assert seen == ["front:ann", "corp:ann", "operator"]
