"""Skills of a real server through the doors, in both eras: the extension, its methods, and the meta-tools."""

import asyncio
import random
import sys
from functools import partial
from typing import Any

from tests.support.mcp_client import NEW, mcp_client
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN, scripted_server
from tests.support.service import BOUND_S, running_service
from tests.support.skill_server import EXTENSION, FILES
from tests.support.wire_client import WireClient
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

SHOWN = "shop+skill://acme/refunds"


def skill_server() -> McpServerUpstream:
    connect = partial(stdio_transport, "shop", [sys.executable, "-m", "tests.support.skill_server"], {}, None)
    return McpServerUpstream("shop", connect, connect_timeout_s=15, jitter=random.random)


@requirement("ROUTE-58", "ROUTE-59", "ROUTE-61", "ROUTE-62", "ROUTE-64", "BROWSE-65", "BROWSE-68")
async def test_skills_of_a_real_server_are_listed_read_found_and_followed() -> None:
    async with running_service(upstreams=[skill_server()]) as service:
        discovered = await WireClient(service, MODERN).ask("server/discover", {})
        assert discovered["result"]["capabilities"]["extensions"][EXTENSION] == {"directoryRead": True}
        for era in (MODERN, HANDSHAKE):
            client = WireClient(service, era)
            listed = (await client.ask("skills/list", {}))["result"]
            uris = [skill["uri"] for skill in listed["skills"]]
            assert uris == [f"{SHOWN}/SKILL.md", "shop+skill://daily/SKILL.md"]
            assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
            assert 0 < listed["ttlMs"] <= 5_000
            got = (await client.ask("skills/get", {"uri": uris[1]}))["result"]
            assert (got["skill"], got["resultType"]) == (listed["skills"][1], "complete")
            read = (await client.ask("resources/read", {"uri": uris[0]}))["result"]
            assert read["contents"][0]["text"] == FILES["skill://acme/refunds/SKILL.md"]
            children = (await client.ask("resources/directory/read", {"uri": SHOWN}))["result"]["resources"]
            assert [(child["uri"], child.get("mimeType")) for child in children] == [
                (f"{SHOWN}/SKILL.md", None),
                (f"{SHOWN}/forms", "inode/directory"),
            ]
            unknown = {"skills/get": f"{SHOWN}/no/SKILL.md", "resources/directory/read": f"{SHOWN}/SKILL.md"}
            for method, uri in unknown.items():
                assert (await client.ask(method, {"uri": uri}))["error"]["code"] == -32602
            assert (
                "No skill is served at"
                in (await client.ask("skills/get", {"uri": f"{SHOWN}/x/SKILL.md"}))["error"]["message"]
            )
            assert (await client.ask("skills/get", {}))["error"]["code"] == -32602

        async with mcp_client(service, NEW, path="/mcp/gateway") as model:
            found = await model.call_tool("tool_browse", {"query": "process a refund"})
            card = (found.structured_content or {})["cards"][0]
            assert (card["kind"], card["id"].partition("#")[0]) == ("skill", "shop:skill.refunds")
            text = await model.call_tool("tool_execute", {"tool_id": card["id"]})
            assert "See forms/A.md." in str(text.structured_content)

            # The server revises the skill: entry and text are new, without a word of an operator.
            await model.call_tool("tool_execute", {"tool_id": "shop:revise"})
            async with asyncio.timeout(BOUND_S):
                while "Revised." not in str(text.structured_content):
                    text = await model.call_tool("tool_execute", {"tool_id": card["id"]})


@requirement("ROUTE-58")
async def test_without_skills_the_extension_and_its_methods_do_not_exist() -> None:
    async with running_service() as service:
        client = WireClient(service, MODERN)
        assert EXTENSION not in str((await client.ask("server/discover", {}))["result"])
        assert (await client.ask("skills/list", {}))["error"]["code"] == -32601


@requirement("BROWSE-70", "ROUTE-58")
async def test_a_server_of_the_older_era_with_skills_and_no_tools_is_no_trouble() -> None:
    skill = {"uri": "skill://x/SKILL.md", "frontmatter": {"name": "x", "description": "X"}, "resources": "dynamic"}
    script: Any = {
        "tools/list": lambda params: {"error": {"code": -32601, "message": "Method not found"}},
        "skills/list": lambda params: {"result": {"skills": [skill]}},
    }
    capabilities: Any = {"resources": {}, "extensions": {EXTENSION: {}}}
    async with (
        scripted_server(script, era=HANDSHAKE, capabilities=capabilities) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        listed = (await WireClient(service).ask("skills/list", {}))["result"]["skills"]
        assert [one["frontmatter"]["name"] for one in listed] == ["x"]
        found = await WireClient(service, path="/mcp/gateway").call("tool_browse", {"path": "/"})
        assert len(found["result"]["structuredContent"]["cards"]) == 1
        assert len(server.seen("tools/list")) == 1
