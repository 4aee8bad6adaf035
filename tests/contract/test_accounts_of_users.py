"""Callers with accounts of their own at one tool server: the login that a call needs, through every door."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from mcp import types as t

from tests.support.account_server import ME, AccountServer
from tests.support.mcp_client import ERAS, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import BOUND_S, KEY, OTHER_KEY, RunningService, chat_body, running_service
from tests.support.token_users import TokenUsers
from tests.support.until import until
from tests.support.wire_client import WireClient
from wicketgate.gateway import logins
from wicketgate.models.provider import ToolCall

URL_ONLY: dict[str, Any] = {"elicitation": {"url": {}}}
ONE, TWO = "owner_1", "owner_2"
ASKED = '{"tool_id":"accounts:whoami"}'
DOORS = pytest.mark.parametrize(
    ("path", "name", "arguments"),
    [
        ("/mcp/gateway", "tool_execute", {"tool_id": "accounts:whoami"}),
        ("/mcp/namespaced", "accounts__whoami", {}),
        ("/mcp/transparent", "tool_execute", {"tool_id": "accounts:whoami"}),
        ("/mcp/registry", "call", {"operation": "/accounts/whoami"}),
    ],
)
UPSTREAM_ERAS = pytest.mark.parametrize("upstream_era", ["client", "2025-11-25", "2026-07-28"])


class Setup:
    def __init__(self, service: RunningService, server: AccountServer, users: TokenUsers) -> None:
        self.service = service
        self.server = server
        self.users = users

    def account(self, actor: str, token: str = "") -> None:
        token = token or f"token-of-{actor}"
        self.server.tokens[token] = actor
        self.users.connect(actor, token)


@asynccontextmanager
async def serving(
    era: str = "client", *, script: ScriptModel | None = None, more: Mapping[str, Any] | None = None, **upstream: Any
) -> AsyncIterator[Setup]:
    server, users = AccountServer(), TokenUsers()
    async with asyncio.timeout(BOUND_S), server.running():
        own = {"name": "accounts", "url": server.url, "credentials": "user", "era": era, **upstream}
        async with running_service(
            script, None, settings={"upstreams": [own], **(more or {})}, users=lambda settings: users, waiting=users
        ) as service:
            yield Setup(service, server, users)


def client_of(setup: Setup, era: str, path: str, capabilities: Any = None) -> WireClient:
    return WireClient(setup.service, era, path, capabilities)


@requirement("FACE-132", "FACE-133")
@DOORS
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
@pytest.mark.parametrize("capabilities", [None, {"elicitation": {}}])
async def test_a_client_that_cannot_be_asked_is_given_the_place_of_the_login(
    path: str, name: str, arguments: dict[str, Any], known: bool, era: str, capabilities: Any
) -> None:
    async with serving() as setup:
        if known:
            setup.account(TWO)
            await WireClient(setup.service, MODERN, "/mcp/namespaced").ask(
                "tools/list", {}, headers={"Authorization": f"Bearer {OTHER_KEY}"}
            )
            assert "whoami" in str([each.id for each in setup.service.app.state.gate.runtime.catalog().items.values()])
        answer = await client_of(setup, era, path, capabilities).call(name, arguments)
        result = answer["result"]
        assert result["isError"]
        assert "-32042" not in json.dumps(answer)
        body = result["structuredContent"]
        need = setup.users.asked[-1]
        place = body["details"] if path == "/mcp/registry" else body["connect_required"]
        assert place == {"upstream": "accounts", "url": need.url, "expires_at": need.expires_at}
        assert (body.get("code") or body["error"]) == "CONNECT_REQUIRED"
        assert json.loads(result["content"][0]["text"]) == body
        # The next call goes on.
        setup.account(ONE)
        answer = await client_of(setup, era, path, capabilities).call(name, arguments)
        assert ONE in json.dumps(answer["result"]["content"])
        assert not answer["result"].get("isError")


@requirement("FACE-130")
@DOORS
@pytest.mark.parametrize("known", [False, True])
async def test_a_client_of_the_newer_era_is_asked_and_its_retry_is_held_until_the_login_has_ended(
    path: str, name: str, arguments: dict[str, Any], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "HELD_S", 25.0)
    async with serving() as setup:
        if known:
            setup.account(TWO)
            await WireClient(setup.service).ask("tools/list", {}, headers={"Authorization": f"Bearer {OTHER_KEY}"})
        client = client_of(setup, MODERN, path, URL_ONLY)
        asked = (await client.call(name, arguments))["result"]
        assert asked["resultType"] == "input_required"
        [question] = asked["inputRequests"].values()
        assert question["method"] == "elicitation/create"
        assert question["params"]["mode"] == "url"
        assert question["params"]["url"] == setup.users.asked[0].url
        assert "token" not in json.dumps(question)
        more = _answers(asked, "accept")
        retry = asyncio.create_task(client.call(name, arguments, more=more))
        await until(lambda: setup.users.awaited)
        assert not retry.done()
        setup.account(ONE)
        result = (await retry)["result"]
        assert ONE in json.dumps(result["content"])
        assert setup.server.calls == {(ONE, "whoami"): 1}


def _answers(asked: Mapping[str, Any], action: str) -> dict[str, Any]:
    return {
        "inputResponses": {key: {"action": action} for key in asked["inputRequests"]},
        "requestState": asked["requestState"],
    }


@requirement("FACE-130")
async def test_a_login_that_takes_longer_is_asked_for_again_with_the_same_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "HELD_S", 0.05)
    async with serving() as setup:
        client, call = client_of(setup, MODERN, "/mcp/namespaced", URL_ONLY), "accounts__whoami"
        asked = (await client.call(call))["result"]
        for _ in range(3):
            again = (await client.call(call, more=_answers(asked, "accept")))["result"]
            assert again["resultType"] == "input_required"
            assert [*again["inputRequests"].values()] == [*asked["inputRequests"].values()]
            asked = again
        setup.account(ONE)
        assert ONE in json.dumps(await client.call(call, more=_answers(asked, "accept")))
        assert len({need.flow for need in setup.users.asked}) == 1


@requirement("FACE-130", "FACE-131")
@ERAS
async def test_a_long_login_is_no_long_call(mode: str) -> None:
    async with serving(more={"tasks": {"after_s": 0.1}}) as setup:

        async def answer(context: Any, params: Any) -> t.ElicitResult:
            asyncio.get_running_loop().call_later(0.7, setup.account, ONE)
            return t.ElicitResult(action="accept")

        async with mcp_client(
            setup.service, mode, path="/mcp/gateway", client={"elicitation_callback": answer}
        ) as client:
            result = await client.call_tool("tool_execute", {"tool_id": "accounts:connect"})
            assert "is connected now" in str(result.content)
            setup.users.revoke(ONE)
            result = await client.call_tool("tool_execute", {"tool_id": "accounts:whoami"})
            assert ONE in str(result.content)


@requirement("FACE-130")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_does_not_open_the_page_ends_the_call(action: str) -> None:
    async with serving() as setup:
        client, call = client_of(setup, MODERN, "/mcp/namespaced", URL_ONLY), "accounts__whoami"
        asked = (await client.call(call))["result"]
        result = (await client.call(call, more=_answers(asked, action)))["result"]
        assert result["isError"]
        assert result["structuredContent"]["error"] == ("FORBIDDEN" if action == "decline" else "CONNECT_REQUIRED")
        # A login that is declined at the page ends it too.
        asked = (await client.call(call))["result"]
        retry = asyncio.create_task(client.call(call, more=_answers(asked, "accept")))
        await until(lambda: setup.users.awaited)
        setup.users.finish(ONE, "declined")
        assert (await retry)["result"]["structuredContent"]["error"] == "FORBIDDEN"
        # One that fails is offered anew, and nobody is asked a second time by the same call.
        asked = (await client.call(call))["result"]
        retry = asyncio.create_task(client.call(call, more=_answers(asked, "accept")))
        await until(lambda: len(setup.users.awaited) == 2)
        setup.users.finish(ONE, "failed")
        failed = (await retry)["result"]["structuredContent"]
        assert failed["connect_required"]["url"] == setup.users.asked[-1].url
        assert not setup.server.calls


@requirement("FACE-131")
@DOORS
async def test_a_client_of_the_handshake_era_is_asked_in_the_middle_of_its_call(
    path: str, name: str, arguments: dict[str, Any]
) -> None:
    asked: list[Any] = []
    told: list[Any] = []

    async with serving() as setup:

        async def answer(context: Any, params: Any) -> t.ElicitResult:
            asked.append(params)
            asyncio.get_running_loop().call_later(0.1, setup.account, ONE)
            return t.ElicitResult(action="accept")

        async def hear(message: Any) -> None:
            told.append(message)

        callbacks = {"elicitation_callback": answer, "message_handler": hear}
        async with mcp_client(setup.service, OLD, path=path, client=callbacks) as client:
            result = await client.call_tool(name, arguments)
        assert ONE in str(result.content)
        [question] = asked
        assert question.url == setup.users.asked[0].url
        done = [each for each in told if isinstance(getattr(each, "root", each), t.ElicitCompleteNotification)]
        assert [getattr(each, "root", each).params.elicitation_id for each in done] == [question.elicitation_id]


@requirement("FACE-130", "FACE-131")
@ERAS
async def test_the_official_client_logs_in_within_its_call(mode: str) -> None:
    async with serving() as setup:

        async def answer(context: Any, params: Any) -> t.ElicitResult:
            asyncio.get_running_loop().call_later(0.1, setup.account, ONE)
            return t.ElicitResult(action="accept")

        callbacks = {"elicitation_callback": answer}
        async with mcp_client(setup.service, mode, path="/mcp/namespaced", client=callbacks) as client:
            tools = await client.list_tools()
            assert [tool.name for tool in tools.tools] == ["accounts__connect"]
            result = await client.call_tool("accounts__connect", {})
            assert result.structured_content == {"connected": "accounts"}
            tools = await client.list_tools()
            assert "accounts__whoami" in [tool.name for tool in tools.tools]
            assert ONE in str((await client.call_tool("accounts__whoami", {})).content)


@requirement("FACE-133")
async def test_over_operations_the_error_says_where_to_connect() -> None:
    async with serving() as setup:
        body = {"operation": "/accounts/whoami", "input": {}}
        found = (await setup.service.http.get("/operations")).json()
        assert found["connect_first"] == ["/accounts"]
        refused = await setup.service.http.post("/operations/call", json=body)
        assert refused.status_code == 403
        error = refused.json().get("error", refused.json())
        assert error["code"] == "CONNECT_REQUIRED"
        assert error["details"]["url"] == setup.users.asked[0].url
        setup.account(ONE)
        assert ONE in (await setup.service.http.post("/operations/call", json=body)).text


@requirement("FACE-134")
async def test_a_chat_ends_with_the_place_of_the_login_and_the_next_one_goes_on() -> None:
    called = [ToolCall(f"call_{n}", "tool_execute", {"tool_id": "accounts:whoami"}, ASKED) for n in (1, 2)]
    script = ScriptModel(calls(called[0]), calls(called[1]), says("it is you"))
    async with serving(script=script) as setup:
        events = await setup.service.chat(chat_body("who am I?"))
        assert [name for name, _ in events] == ["tool-call", "tool-result", "done"]
        assert events[-1][1]["finish_reason"] == "connect_required"
        body = json.loads(events[1][1]["error"])
        assert body["connect_required"]["url"] == setup.users.asked[0].url
        setup.account(ONE)
        history = [
            {"role": "user", "content": "who am I?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "tool_execute", "arguments": ASKED}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": events[1][1]["error"]},
        ]
        events = await setup.service.chat({**chat_body(), "messages": history})
        assert ONE in events[1][1]["output"]
        assert events[-1][1]["finish_reason"] == "stop"


@requirement("UP-176", "UP-177")
async def test_a_server_that_waits_for_a_first_login_is_shown_to_models_and_operators() -> None:
    async with serving() as setup:
        health = (await setup.service.health())["upstreams"]["accounts"]
        assert (health["state"], health["error"]) == ("waiting", "waits for a first login")
        assert (await setup.service.http.get("/readyz")).status_code == 200
        client = client_of(setup, MODERN, "/mcp/gateway")
        assert "Namespaces here: accounts" in (await client.ask("server/discover", {}))["result"]["instructions"]
        for arguments in ({"path": "/"}, {"path": "/accounts"}, {"query": "send with accounts"}, {"query": "zzz"}):
            shown = (await client.call("tool_browse", arguments))["result"]["content"][0]["text"]
            assert "accounts:connect" in shown
            tokens = setup.service.app.state.gate.runtime.tokens
            assert tokens.count(shown.splitlines()[0]) <= 60
        assert not setup.users.asked, "lists never ask"
        listed = (await client_of(setup, MODERN, "/mcp/namespaced").ask("tools/list", {}))["result"]
        assert listed["_meta"]["wicketgate/missing"] == {"accounts": "waits for a first login"}
        # An account that is there already, as after a restart, is used without a question.
        setup.account(ONE)
        shown = (await client.call("tool_browse", {"path": "/accounts"}))["result"]["content"][0]["text"]
        assert "whoami" in shown
        assert (await setup.service.health())["upstreams"]["accounts"]["state"] == "ready"
        assert not setup.users.asked


@requirement("UP-180", "UP-181")
@ERAS
@UPSTREAM_ERAS
async def test_lists_prompts_and_resources_are_those_of_the_callers_account(mode: str, upstream_era: str) -> None:
    async with serving(upstream_era) as setup:
        setup.account(ONE)
        setup.account(TWO)
        for _ in range(2):  # lists are kept
            for key, actor in ((KEY, ONE), (OTHER_KEY, TWO)):
                async with mcp_client(setup.service, mode, key, "/mcp/namespaced") as client:
                    await client.list_tools()
                    uris = [str(each.uri) for each in (await client.list_resources()).resources]
                    assert uris == sorted([f"accounts+{ME}", f"accounts+account://{actor}/box"])
                    templates = (await client.list_resource_templates()).resource_templates
                    assert [each.name for each in templates] == [actor]
                    names = [each.name for each in (await client.list_prompts()).prompts]
                    assert names == ["accounts__hello", f"accounts__of_{actor}"]
                    assert actor in str(await client.read_resource(f"accounts+{ME}"))
                    assert actor in str(await client.get_prompt("accounts__hello"))
                    ref = t.PromptReference(name="accounts__hello")
                    assert (await client.complete(ref, {"name": "a", "value": ""})).completion.values == [actor]
        # A caller without an account is shown nothing of the others, and is not asked.
        setup.users.revoke(TWO)
        async with mcp_client(setup.service, mode, OTHER_KEY, "/mcp/namespaced") as client:
            assert not (await client.list_resources()).resources
            assert not (await client.list_resource_templates()).resource_templates
            assert not (await client.list_prompts()).prompts
            ref = t.PromptReference(name="accounts__hello")
            assert not (await client.complete(ref, {"name": "a", "value": ""})).completion.values
            before = len(setup.users.asked)
            listed = await client.list_prompts()
            assert len(setup.users.asked) == before
            assert listed.meta and "accounts" in listed.meta["wicketgate/missing"]


@requirement("UP-181", "FACE-130")
@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/get", {"name": "accounts__hello"}), ("resources/read", {"uri": f"accounts+{ME}"})],
)
async def test_a_prompt_or_a_resource_asks_for_the_login_too(method: str, params: dict[str, Any]) -> None:
    async with serving() as setup:
        setup.account(TWO)
        await WireClient(setup.service).ask("tools/list", {}, headers={"Authorization": f"Bearer {OTHER_KEY}"})
        refused = await WireClient(setup.service, MODERN).ask(method, params)
        assert refused["error"]["data"]["connect_required"]["url"] == setup.users.asked[0].url
        assert refused["error"]["code"] != -32042
        client = client_of(setup, MODERN, "/mcp/namespaced", URL_ONLY)
        asked = (await client.ask(method, params))["result"]
        assert asked["resultType"] == "input_required"
        retry = asyncio.create_task(client.ask(method, {**params, **_answers(asked, "accept")}))
        await until(lambda: setup.users.awaited)
        setup.account(ONE)
        assert ONE in json.dumps((await retry)["result"])


@requirement("UP-182")
@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
@ERAS
@UPSTREAM_ERAS
async def test_changes_of_a_resource_reach_those_of_its_account_alone(mode: str, upstream_era: str) -> None:
    heard: dict[str, list[str]] = {ONE: [], TWO: []}
    uri = f"accounts+{ME}"
    async with serving(upstream_era) as setup:
        setup.account(ONE)
        setup.account(TWO)
        changed = {actor: asyncio.Event() for actor in heard}

        @asynccontextmanager
        async def listening(key: str, actor: str) -> AsyncIterator[Any]:
            async def hear(message: Any) -> None:
                message = getattr(message, "root", message)
                if isinstance(message, t.ResourceUpdatedNotification):
                    heard[actor].append(str(message.params.uri))
                    changed[actor].set()

            async with mcp_client(
                setup.service, mode, key, "/mcp/namespaced", client={"message_handler": hear}
            ) as client:
                await client.list_tools()
                if mode == OLD:
                    await client.subscribe_resource(uri)
                    yield client
                    return
                async with client.listen(resource_subscriptions=[uri]) as events:

                    async def follow() -> None:
                        async for _ in events:
                            heard[actor].append(uri)
                            changed[actor].set()

                    following = asyncio.create_task(follow())
                    try:
                        yield client
                    finally:
                        following.cancel()

        async with listening(KEY, ONE) as one, listening(OTHER_KEY, TWO) as two:
            # Until both are subscribed at the server.
            for client, actor in ((one, ONE), (two, TWO)):
                touch = partial(client.call_tool, "accounts__touch", {})
                await until(touch, lambda _: changed[actor].is_set())
            await asyncio.sleep(0.2)  # the news of the last touches
            heard[ONE].clear()
            heard[TWO].clear()
            changed[ONE].clear()
            await one.call_tool("accounts__touch", {})
            await changed[ONE].wait()
            await asyncio.sleep(0.2)  # nothing comes for the other
            assert set(heard[ONE]) == {uri}
            assert heard[TWO] == []


@requirement("UP-183")
async def test_a_kept_result_is_no_other_accounts_and_ends_with_its_grant() -> None:
    async with serving(cache={"tools": ["whoami"]}) as setup:
        setup.account(ONE)
        setup.account(TWO)
        body = {"operation": "/accounts/whoami"}
        http = setup.service.http

        async def said(key: str) -> str:
            return (await http.post("/operations/call", json=body, headers={"Authorization": f"Bearer {key}"})).text

        for _ in range(8):  # the first refreshes of the catalog clear what is kept
            assert ONE in await said(KEY)
            assert TWO in await said(OTHER_KEY)
        assert 0 < setup.server.calls[ONE, "whoami"] < 8
        assert 0 < setup.server.calls[TWO, "whoami"] < 8
        # Another account of the same actor, and none at all.
        setup.server.tokens["elsewhere"] = "another"
        setup.users.connect(ONE, "elsewhere")
        assert "another" in await said(KEY)
        setup.users.revoke(ONE)
        assert "CONNECT_REQUIRED" in await said(KEY)


@requirement("UP-183")
@UPSTREAM_ERAS
async def test_answers_of_two_accounts_never_mix_through_any_door_under_load(upstream_era: str) -> None:
    paths = [
        ("/mcp/gateway", "tool_execute", {"tool_id": "accounts:whoami", "args": {}}),
        ("/mcp/namespaced", "accounts__whoami", {}),
        ("/mcp/transparent", "tool_execute", {"tool_id": "accounts:whoami", "args": {}}),
        ("/mcp/registry", "call", {"operation": "/accounts/whoami", "input": {}}),
    ]
    async with serving(upstream_era, cache={"tools": ["whoami"], "ttl_s": 0.05}) as setup:
        setup.account(ONE)
        setup.account(TWO)
        wrong: list[str] = []
        asked = 0

        async def one(key: str, actor: str, other: str, path: str, name: str, arguments: Any, era: str) -> None:
            nonlocal asked
            client = WireClient(setup.service, era, path)
            headers = {"Authorization": f"Bearer {key}"}
            for _ in range(3):
                answers = [
                    json.dumps((await client.call(name, arguments, headers=headers))["result"]["content"]),
                    (
                        await setup.service.http.post(
                            "/operations/call", json={"operation": "/accounts/whoami"}, headers=headers
                        )
                    ).text,
                ]
                if path == "/mcp/namespaced":
                    for method, params in (
                        ("resources/list", {}),
                        ("prompts/list", {}),
                        ("resources/read", {"uri": f"accounts+{ME}"}),
                        ("prompts/get", {"name": "accounts__hello"}),
                    ):
                        answers.append(json.dumps((await client.ask(method, params, headers=headers))["result"]))
                asked += len(answers)
                wrong.extend(each for each in answers if actor not in each or other in each)

        await asyncio.gather(
            *(
                one(key, actor, other, *door, era)
                for key, actor, other in ((KEY, ONE, TWO), (OTHER_KEY, TWO, ONE))
                for door in paths
                for era in (MODERN, HANDSHAKE)
            )
        )
        assert not wrong
        assert asked == 2 * 2 * 3 * (2 * 4 + 4)
        assert set(setup.server.seen) == {f"Bearer token-of-{ONE}", f"Bearer token-of-{TWO}"}
        assert KEY not in str(setup.server.seen)
