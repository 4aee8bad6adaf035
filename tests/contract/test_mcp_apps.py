"""MCP Apps of several servers: pages, the extension, and what results carry (ROUTE-44, ROUTE-50, ROUTE-53,
ROUTE-54)."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp import types as t

from tests.fleet.test_features import Scripted
from tests.support.mcp_client import ERAS, NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.fleet.features import FeatureSupport
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

APPS, TASKS = "io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks"
NAMESPACED, GATEWAY = "/mcp/namespaced", "/mcp/gateway"

OBJECT = {"type": "object"}
PAGE_TYPE = "text/html;profile=mcp-app"
FOR_THE_PAGE = {"theirs": {"rows": [1, 2]}, "io.modelcontextprotocol/serverInfo": {"name": "secret", "version": "1"}}
TOO_MUCH = {"theirs": "x" * 100_000}


class Pages(Scripted):
    """One page, with what a host needs to show it."""

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        page = {"uri": params["uri"], "mimeType": PAGE_TYPE, "text": "<p>", "_meta": {"ui": {"prefersBorder": True}}}
        return {"contents": [page]}


class Shop(StubUpstream):
    """A server with a page."""

    def __init__(self, support: FeatureSupport, *tools: Mapping[str, Any]) -> None:
        super().__init__(tools, self._answer, name="my_shop")
        page = {"uri": "ui://cart/page.html", "name": "cart", "mimeType": PAGE_TYPE, "_meta": {"ui": {"csp": {}}}}
        self.features = Pages([page], support)

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        meta = TOO_MUCH if arguments.get("much") else FOR_THE_PAGE
        return {"content": [{"type": "text", "text": "two rows"}], "_meta": meta}


CART = {"name": "cart", "inputSchema": OBJECT, "_meta": {"ui": {"resourceUri": "ui://cart/page.html"}}}


@ERAS
@requirement("ROUTE-44", "ROUTE-45", "ROUTE-53")
async def test_a_host_finds_and_reads_the_page_of_a_tool(mode: str) -> None:
    shop = Shop(FeatureSupport(resources=True), CART)
    async with running_service(upstreams=[shop]) as service, mcp_client(service, mode, path=NAMESPACED) as client:
        (tool,) = (await client.list_tools()).tools
        (listed,) = (await client.list_resources()).resources
        uri = (tool.meta or {})["ui"]["resourceUri"]
        assert uri == str(listed.uri) == "ui://my.shop/cart/page.html"
        assert (listed.mime_type, listed.meta) == (PAGE_TYPE, {"ui": {"csp": {}}})
        (page,) = (await client.read_resource(uri)).contents
    assert isinstance(page, t.TextResourceContents)
    assert (str(page.uri), page.mime_type, page.meta) == (uri, PAGE_TYPE, {"ui": {"prefersBorder": True}})


@ERAS
@requirement("ROUTE-54")
async def test_what_a_result_carries_beside_its_answer_passes_through_tool_execute(mode: str) -> None:
    shop = Shop(FeatureSupport(), CART)
    async with running_service(upstreams=[shop]) as service, mcp_client(service, mode, path=GATEWAY) as client:
        result = await client.call_tool("tool_execute", {"tool_id": "my_shop:cart", "args": {}})
        much = await client.call_tool("tool_execute", {"tool_id": "my_shop:cart", "args": {"much": True}})
    assert not result.is_error and not much.is_error, result
    assert (result.meta or {})["theirs"] == {"rows": [1, 2]}
    assert "secret" not in result.model_dump_json()
    assert "theirs" not in (much.meta or {})
    assert "theirs" not in str([*result.content, result.structured_content])


PLAIN = {"name": "plain", "inputSchema": OBJECT}


@pytest.mark.parametrize(
    ("shop", "shown"),
    [
        (Shop(FeatureSupport(extensions={APPS: {}}), PLAIN), True),
        (Shop(FeatureSupport(), CART), True),
        (Shop(FeatureSupport(extensions={"com.example/other": {}}), PLAIN), False),
    ],
    ids=["declared", "a tool has a page", "neither"],
)
@requirement("ROUTE-50")
async def test_the_extension_is_shown_when_a_server_has_pages(shop: Shop, shown: bool) -> None:
    pages: dict[str, Any] = {APPS: {}} if shown else {}
    tasks: dict[str, Any] = {TASKS: {}}
    expected = {
        (NEW, NAMESPACED): {**pages, **tasks},
        (OLD, NAMESPACED): pages,
        (NEW, GATEWAY): tasks,
        (OLD, GATEWAY): {},
    }
    async with running_service(upstreams=[shop]) as service:
        for (era, path), extensions in expected.items():
            # A client that is told its era in advance opens nothing.
            mode = "auto" if era == NEW else era
            async with mcp_client(service, mode, path=path) as client:
                assert (client.server_capabilities.extensions or {}) == extensions, (era, path)


@requirement("ROUTE-51", "FACE-64")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_tool_for_pages_alone_is_there_only_for_a_client_that_shows_pages(era: str) -> None:
    only = {"name": "refresh", "inputSchema": OBJECT, "_meta": {"ui": {"visibility": ["app"]}}}
    async with running_service(upstreams=[Shop(FeatureSupport(), CART, only)]) as service:
        host = WireClient(service, era, capabilities={"extensions": {APPS: {"mimeTypes": [PAGE_TYPE]}}})
        other = WireClient(service, era, capabilities={"extensions": {"com.example/other": {}}})
        for client, names in ((host, ["my_shop__cart", "my_shop__refresh"]), (other, ["my_shop__cart"])):
            listed = (await client.ask("tools/list", {}))["result"]["tools"]
            assert [tool["name"] for tool in listed] == names
        assert (await host.call("my_shop__refresh"))["result"]["content"]
        unknown = (await other.call("my_shop__nothing"))["error"]
        hidden = (await other.call("my_shop__refresh"))["error"]
        assert hidden == {**unknown, "message": unknown["message"].replace("nothing", "refresh")}
