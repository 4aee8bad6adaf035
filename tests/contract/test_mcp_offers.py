"""Resources, prompts, completions of real servers through the namespaced face, both eras on both sides (ROUTE-11)."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from operator import not_
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp import types as t
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl

from tests.support.feature_server import NOTE
from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import BOUND_S, OTHER_KEY, READER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from tests.support.warm_server import warm
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings
from wicketgate.faces.mcp.fit import MISSING_KEY
from wicketgate.models.provider import ToolCall
from wicketgate.ports import Upstream
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

PATH = "/mcp/namespaced"


pytestmark = pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}")


def feature_server(name: str, mode: Mode) -> McpServerUpstream:
    connect = partial(stdio_transport, name, warm("tests.support.feature_server"), {}, None)
    return McpServerUpstream(name, connect, connect_timeout_s=15, jitter=random.random, mode=mode, instructions=True)


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[RunningService]:
    """``alpha`` speaks the newer era, ``beta`` the older one, ``files`` has nothing but tools."""
    upstreams: list[Upstream] = [feature_server("alpha", "auto"), feature_server("beta", "handshake"), FileServer()]
    async with running_service(upstreams=upstreams, settings=settings) as service:
        yield service


@requirement("ROUTE-4", "ROUTE-8", "ROUTE-11", "ROUTE-42", "ROUTE-45")
@requirement("FACE-7", "ROUTE-10", "UP-3")
async def test_resources_prompts_and_completions_are_one_list_and_found_by_their_servers_name() -> None:
    async with served() as service:
        for mode in ("auto", OLD):
            async with mcp_client(service, mode, path=PATH) as client:
                await sees_what_is_offered(client)
                for server in ("alpha", "beta"):
                    await works_with(client, server)
                await is_told_what_is_wrong(client)
        async with mcp_client(service, "auto", READER_KEY, path=PATH) as reader:
            await sees_nothing(reader)
        async with mcp_client(service, NEW, path=PATH, client={"elicitation_callback": answer_ada}) as client:
            (content,) = (await client.read_resource("alpha+demo://asks")).contents
            assert isinstance(content, t.TextResourceContents)
            assert content.text == "Ada theirs"
        states = (await service.health())["upstreams"]
        assert [states[server]["connections"] for server in ("alpha", "beta")] == [1, 1]


@requirement("ACCESS-360")
async def test_a_gate_shows_the_instructions_of_servers_that_it_names_whole() -> None:
    gates = {"part": {"tools": ["alpha:*", "beta:[a-z]?*"], "face": "namespaced"}}
    async with served(gates=gates) as service, mcp_client(service, OLD, path="/mcp/gates/part") as client:
        assert "alpha: Read the note first." in (client.instructions or "")
        assert "beta: Read" not in (client.instructions or "")


async def sees_what_is_offered(client: Client) -> None:
    assert client.server_capabilities.resources is not None
    assert client.server_capabilities.resources.subscribe
    assert client.server_capabilities.prompts is not None
    assert client.server_capabilities.completions is not None
    assert "alpha: Read the note first.\nbeta: Read the note first." in (client.instructions or "")
    listed = await client.list_resources()
    own = [f"demo://{name}" for name in ("note", "r0", "r1", "r2")]
    assert [str(one.uri) for one in listed.resources] == [
        f"{server}+{uri}" for server in ("alpha", "beta") for uri in own
    ]
    assert [str(AnyUrl(str(one.uri))) for one in listed.resources] == [str(one.uri) for one in listed.resources]
    assert listed.resources[0].description == "A note."
    assert MISSING_KEY not in (listed.meta or {})  # a server without resources is missing nothing
    templates = (await client.list_resource_templates()).resource_templates
    assert [one.uri_template for one in templates] == ["alpha+demo://{name}", "beta+demo://{name}"]
    assert [one.name for one in (await client.list_prompts()).prompts] == ["alpha__hello", "beta__hello"]


async def works_with(client: Client, server: str) -> None:
    (content,) = (await client.read_resource(f"{server}+{NOTE}")).contents
    assert isinstance(content, t.TextResourceContents)
    assert (str(content.uri), content.text) == (f"{server}+{NOTE}", f"text of {NOTE}")
    prompt = await client.get_prompt(f"{server}__hello", {"name": "bob"})
    assert prompt.messages[0].content.text == "hello bob"  # type: ignore[union-attr]
    argument: Any = {"name": "name", "value": "b"}
    by_prompt = await client.complete(t.PromptReference(name=f"{server}__hello"), argument)
    assert by_prompt.completion.values == ["hello name=b"]
    by_template = await client.complete(t.ResourceTemplateReference(uri=f"{server}+demo://{{name}}"), argument)
    assert by_template.completion.values == ["demo://{name} name=b"]


async def is_told_what_is_wrong(client: Client) -> None:
    wrong = {
        "demo://note": "Resource 'demo://note' is not properly namespaced. "
        "All resource calls must use 'server+scheme://...' format",
        "nope+demo://note": "Unknown server 'nope' in request",
        "files+demo://note": "Resource 'files+demo://note' not found",
        "alpha+demo://missing": "Resource 'alpha+demo://missing' not found",
    }
    for uri, message in wrong.items():
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        assert refused.value.message == message
    asked = {"uri": "alpha+demo://missing"}
    if client.protocol_version == NEW:
        assert (refused.value.code, refused.value.data) == (-32602, {**asked, "upstream_code": -32002})
    else:
        assert (refused.value.code, refused.value.data) == (-32002, asked)
    with pytest.raises(MCPError) as unknown:
        await client.get_prompt("alpha__nope")
    assert unknown.value.message == "Unknown prompt: alpha__nope"


async def sees_nothing(reader: Client) -> None:
    """It may use one tool of another server."""
    assert (await reader.list_resources()).resources == []
    assert (await reader.list_prompts()).prompts == []
    assert "note first" not in (reader.instructions or "")
    messages = []
    for name in ("alpha", "nope"):
        with pytest.raises(MCPError) as refused:
            await reader.read_resource(f"{name}+{NOTE}")
        messages.append(refused.value.message.replace(name, "X"))
    assert messages[0] == messages[1]


async def answer_ada(context: Any, params: Any) -> t.ElicitResult:
    return t.ElicitResult(action="accept", content={"name": "Ada"})


class Heard:
    """Notifications that a client of either era was sent, by name."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def message(self, message: object) -> None:
        match message:
            case t.ResourceListChangedNotification():
                self.names.add("resources")
            case t.PromptListChangedNotification():
                self.names.add("prompts")
            case t.ResourceUpdatedNotification(params=params):
                self.names.add(str(params.uri))

    async def listen(self, client: Client, ready: asyncio.Event, uris: list[str]) -> None:
        async with client.listen(
            prompts_list_changed=True, resources_list_changed=True, resource_subscriptions=uris
        ) as subscription:
            ready.set()
            async for event in subscription:
                match event:
                    case ResourcesListChanged():
                        self.names.add("resources")
                    case PromptsListChanged():
                        self.names.add("prompts")
                    case ResourceUpdated(uri=changed):
                        self.names.add(changed)


async def touched(client: Client, server: str) -> str:
    """Make the server announce everything; what is subscribed to at it, if it is of the older era."""
    result = await client.call_tool(f"{server}__touch", {})
    return str(result.content[0].text)  # type: ignore[union-attr]


async def touched_both(client: Client) -> None:
    await touched(client, "alpha")
    assert await touched(client, "beta") in (NOTE, "")


@requirement("ROUTE-11", "ROUTE-42", "ROUTE-45")
async def test_changes_reach_the_clients_that_asked_for_them_and_nobody_asks_for_ever() -> None:
    uris = [f"alpha+{NOTE}", f"beta+{NOTE}", f"beta__{NOTE}"]
    async with served() as service, asyncio.timeout(2 * BOUND_S), mcp_client(service, OLD, path=PATH) as watcher:
        for mode in (NEW, OLD):
            heard = Heard()
            async with mcp_client(service, mode, path=PATH, client={"message_handler": heard.message}) as client:
                before = len((await client.list_resources()).resources)
                listening = None
                if mode == NEW:
                    ready = asyncio.Event()
                    listening = asyncio.create_task(heard.listen(client, ready, [*uris, f"nope__{NOTE}"]))
                    await ready.wait()
                else:
                    for uri in uris:
                        await client.session.subscribe_resource(uri)
                    with pytest.raises(MCPError):
                        await client.session.subscribe_resource(f"nope__{NOTE}")
                # The streams on both sides open at some time after they were asked for.
                await until(
                    partial(touched_both, client),
                    lambda _: heard.names == {"resources", "prompts", *uris},
                    pause_s=0.05,
                )
                assert len((await client.list_resources(cache_mode="bypass")).resources) > before
                if listening:
                    listening.cancel()
            # It is gone, and with it what it asked for.
            await until(lambda: touched(watcher, "beta"), not_)
        await watcher.session.subscribe_resource(uris[1])
        await until(lambda: touched(watcher, "beta"))
        await watcher.session.unsubscribe_resource(uris[1])
        await until(lambda: touched(watcher, "beta"), not_)


@requirement("ROUTE-11", "OPS-7")
async def test_other_access_rules_are_announced_since_they_say_whose_resources_and_prompts_are_shown() -> None:
    rule = {"match": "alpha:*", "when": "actor == 'owner_1'", "effect": "deny"}
    async with served() as service, mcp_client(service, NEW, path=PATH) as client, asyncio.timeout(BOUND_S):
        before = (await client.list_resources()).resources
        async with client.listen(prompts_list_changed=True, resources_list_changed=True) as subscription:
            await service.app.state.gate.apply(Settings.model_validate({"access": [rule]}))
            events = aiter(subscription)
            assert {type(await anext(events)) for _ in range(2)} == {PromptsListChanged, ResourcesListChanged}
        shown = [str(one.uri) for one in (await client.list_resources(cache_mode="bypass")).resources]
    assert shown == [str(one.uri) for one in before if str(one.uri).startswith("beta+")]


@pytest.mark.parametrize("mode", [OLD, NEW])
@requirement("ACCESS-73")
async def test_a_client_hears_no_more_of_a_resource_that_other_rules_hide(mode: str) -> None:
    uris = [f"alpha+{NOTE}", f"beta+{NOTE}", f"beta__{NOTE}"]
    deny = {"match": "beta:*", "when": "actor == 'owner_1'", "effect": "deny"}
    heard = Heard()
    async with (
        served() as service,
        asyncio.timeout(2 * BOUND_S),
        mcp_client(service, OLD, OTHER_KEY, path=PATH) as other,
        mcp_client(service, mode, path=PATH, client={"message_handler": heard.message}) as client,
    ):
        listening = None
        if mode == NEW:
            ready = asyncio.Event()
            listening = asyncio.create_task(heard.listen(client, ready, uris))
            await ready.wait()
        else:
            for uri in uris:
                await client.session.subscribe_resource(uri)
        await until(lambda: touched(other, "beta"))
        await service.app.state.gate.apply(Settings.model_validate({"access": [deny]}))
        # Nobody else wants it, so the server is not asked for it any more.
        await until(lambda: touched(other, "beta"), not_)
        if listening:
            await listening  # with a last frame, after which the client may listen anew
            return
        heard.names.clear()
        await until(partial(touched_both, other), lambda _: uris[0] in heard.names)
    assert uris[1] not in heard.names


@requirement("ROUTE-19", "ROUTE-26", "ROUTE-30")
async def test_what_is_read_and_prompted_passes_the_plugins_like_results_of_tools() -> None:
    filters = [{"handler": "pii_filter", "config": {"on": ["result"]}}, {"handler": "secrets_filter"}]
    traces = [{"handler": "call_trace"}, {"handler": "token_usage"}]
    mark, uri = "[EMAIL REDACTED by Wicketgate]", "alpha+demo://bob@example.com"
    plugins = {"security": {"_global": filters}, "middleware": {"_global": traces}}
    async with served(plugins=plugins) as service:
        for mode in (NEW, OLD):
            async with mcp_client(service, mode, path=PATH) as client:
                (content,) = (await client.read_resource(uri)).contents
                assert isinstance(content, t.TextResourceContents)
                assert (str(content.uri), content.text) == (uri, f"text of demo://{mark}")
                prompt = await client.get_prompt("alpha__hello", {"name": "bob@example.com"})
                assert isinstance(prompt.messages[0].content, t.TextContent)
                assert prompt.messages[0].content.text == f"hello {mark}"
                with pytest.raises(MCPError) as refused:
                    await client.get_prompt("alpha__bob@example.com")
                assert "bob" not in refused.value.error.message


@requirement("ACCESS-23")
async def test_what_was_refused_is_on_record_like_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    auditing = {"_global": [{"handler": "audit_jsonl", "config": {"path": str(path)}}]}
    async with served(plugins={"auditing": auditing}) as service:
        async with mcp_client(service, NEW, path=PATH) as client:
            await client.read_resource(f"alpha__{NOTE}")
        async with mcp_client(service, NEW, READER_KEY, path=PATH) as reader:
            for refused in (f"alpha__{NOTE}", "nowhere__a://b", "not namespaced"):
                with pytest.raises(MCPError):
                    await reader.read_resource(refused)
            with pytest.raises(MCPError):
                await reader.get_prompt("alpha__hello", {})
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(record["actor"], record["operation"], record["outcome"]) for record in records] == [
        ("owner_1", "read", "allowed"),
        ("reader", "read", "denied"),
        ("reader", "read", "invalid"),
        ("reader", "read", "invalid"),
        ("reader", "prompt", "denied"),
    ]


async def viewed(client: Client, handle: str, selector: dict[str, Any] | None = None) -> dict[str, Any]:
    arguments = {"handle": handle, "selector": selector or {"type": "head", "chars": 100}}
    shown = (await client.call_tool("tool_view", arguments)).structured_content
    assert isinstance(shown, dict)
    return shown


@requirement("EXEC-81", "EXEC-82")
@pytest.mark.parametrize("mode", [NEW, OLD])
async def test_a_link_of_a_result_is_viewed_by_its_uri_and_by_nobody_else(mode: Mode) -> None:
    async with served() as service, mcp_client(service, mode, path="/mcp/gateway") as client:
        unknown = await viewed(client, NOTE)
        assert unknown["error"] == "VIEW_FAILED"
        run = await client.call_tool("tool_execute", {"tool_id": "beta:touch", "args": {}})
        assert run.structured_content is not None
        (fact, gone) = (each for each in run.structured_content["facts"] if each.startswith("link: "))
        for handle in (NOTE, fact, fact.removeprefix("link: ")):
            shown = await viewed(client, handle)
            assert (shown["handle"], shown["content"], shown["total"]) == (handle, f"text of {NOTE}", 19)
        part = await viewed(client, NOTE, {"type": "grep", "pattern": "text"})
        assert part["content"] == f"0:text of {NOTE}"
        assert (await viewed(client, NOTE, {"type": "odd"}))["error"] == "VIEW_FAILED"
        assert "not found" in (await viewed(client, gone))["message"]
        for stranger in (OTHER_KEY, READER_KEY):
            async with mcp_client(service, mode, stranger, path="/mcp/gateway") as other:
                assert await viewed(other, NOTE) == unknown


NARROW_KEY = "wg_narrow_0123456789012345678901234567890123456"


@requirement("EXEC-82")
async def test_a_narrower_key_of_the_actor_views_no_link_of_a_tool_that_it_may_not_use() -> None:
    narrow = {"id": "narrow", "sha256": hash_key(NARROW_KEY), "actor": "owner_1", "permissions": ["resources:beta"]}
    async with served(auth={"keys": [narrow]}) as service:
        async with mcp_client(service, NEW, path="/mcp/gateway") as client:
            await client.call_tool("tool_execute", {"tool_id": "beta:touch", "args": {}})
            assert (await viewed(client, NOTE))["content"] == f"text of {NOTE}"
        async with mcp_client(service, NEW, NARROW_KEY, path=PATH) as reader:
            assert (await reader.read_resource(f"beta+{NOTE}")).contents, "it may read the resource"
        async with mcp_client(service, NEW, NARROW_KEY, path="/mcp/gateway") as reader:
            refused, unknown = await viewed(reader, NOTE), await viewed(reader, "demo://unknown")
        assert refused == {**unknown, "path": NOTE}


@requirement("EXEC-81")
async def test_the_engine_views_a_link_too() -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tool_execute", {"tool_id": "alpha:touch"}),
        ("tool_view", {"handle": NOTE, "selector": {"type": "head", "chars": 100}}),
    ]
    turns = [calls(ToolCall(f"c{n}", name, args, json.dumps(args))) for n, (name, args) in enumerate(asked)]
    async with running_service(ScriptModel(*turns, says("ok")), [feature_server("alpha", "auto")]) as service:
        answers = [json.loads(data["output"]) for event, data in await service.chat() if event == "tool-result"]
    assert answers[1]["content"] == f"text of {NOTE}"
