"""Our connector as the official conformance suite's client: it lists the tools of a scenario's server and calls them.

In the scenarios of skills a runtime stands before it: it browses the skills and loads them, as a model would. The suite
appends the server's URL and says more in the environment (docs/conformance.md, "Run the suites").
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from conformance.logins import credentials_for
from tests.support.supervised import connected, context, over
from wicketgate.errors import GatewayError, InputRequired
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.net import Outgoing
from wicketgate.ports import AnswerTime, InputAnswers, Upstream
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

MODERN = "2026-07-28"
ROUNDS = 8
OF_SKILLS = "sep-2640-client-"
UNASKED = "sep-2640-client-no-prefetch"
"""The scenario in which no skill is loaded, only listed."""
SUPPORTING = "references/FORMS.md"
"""The second file of each skill of these scenarios."""
VALUES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "string": "x", "array": [], "object": {}}


class Person:
    """Implements Caller: accepts every form, with its defaults, as the client of a *version*."""

    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}}}

    def __init__(self, version: str) -> None:
        self.answers: AnswerTime = "later" if version >= MODERN else "now"

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, level: str, data: object, logger: str | None) -> None:
        return

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = params.get("requestedSchema", {}).get("properties", {})
        content = {name: of.get("default", VALUES.get(of.get("type", ""), "x")) for name, of in properties.items()}
        return {"action": "accept", "content": content}

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        return


def arguments_for(tool: Mapping[str, Any], tools: list[Mapping[str, Any]]) -> dict[str, Any]:
    properties: Mapping[str, Any] = tool.get("inputSchema", {}).get("properties", {})
    if "schema" in properties:  # the tool that wants to see what we kept of another's schema
        return {"schema": tools[0]["inputSchema"]}
    return {name: VALUES.get(str(of.get("type")), "x") for name, of in properties.items()}


async def call(upstream: McpServerUpstream, name: str, arguments: Mapping[str, Any], person: Person) -> None:
    """Calls a tool again with the answers that it asks for. Raises GatewayError."""
    answers = None
    for _ in range(ROUNDS):
        try:
            await upstream.call_tool(name, arguments, context(person, answers=answers), 10)
            return
        except InputRequired as required:
            given = {key: await person.ask(one["method"], one["params"]) for key, one in required.requests.items()}
            answers = InputAnswers(given, required.request_state)


async def call_all(upstream: McpServerUpstream, wanted: list[Mapping[str, Any]], person: Person) -> None:
    """Calls what is *wanted*; every tool if that is nothing."""
    tools = list(await upstream.list_tools())
    calls = [(call["name"], call["arguments"]) for call in wanted]
    calls = calls or [(tool["name"], arguments_for(tool, tools)) for tool in tools]
    for name, arguments in calls:
        with suppress(GatewayError):
            await call(upstream, name, arguments, person)


async def load_skills(upstream: Upstream, supporting: str | None) -> None:
    """Browses the skills, and with *supporting* takes the ``SKILL.md`` of each and then that file, until one is
    refused (OPS-155). Raises RuntimeError where there are none."""
    runtime = ProxyRuntime(MultiplexUpstream([upstream]))
    await runtime.refresh_catalog()
    await runtime.browse_query("handle a document")
    skills = [item for item in runtime.catalog().items.values() if item.kind == "skill"]
    if not skills:
        raise RuntimeError("no skill was listed")
    for skill in skills if supporting else ():
        with suppress(GatewayError):
            await runtime.execute(skill.id, {})
            await runtime.execute(skill.id, {"file": supporting})


async def main(url: str) -> None:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") or MODERN
    scenario, failed = os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), asyncio.Event()
    credentials = credentials_for(scenario, url, given, failed)
    connect = partial(http_transport, "conformance", url, {}, outgoing=Outgoing(), credentials=credentials)
    upstream = over(connect, "auto" if version >= MODERN else "handshake")

    async def use() -> None:
        async with connected(upstream):
            if scenario.startswith(OF_SKILLS):
                await load_skills(upstream, SUPPORTING if scenario != UNASKED else None)
            else:
                await call_all(upstream, given.get("toolCalls", []), Person(version))

    # A scenario may be over with a login that is refused: nothing connects then.
    using, ending = asyncio.create_task(use()), asyncio.create_task(failed.wait())
    await asyncio.wait([using, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not using.done():
        using.cancel()
        await asyncio.wait([using])
    if failed.is_set():
        sys.exit("the login failed")
    await using


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
