"""The columns of the client matrix: what each asks of a client, and what has to come.

Behind the gate stands the same server twice (``fixture.py``): ``new`` opened in the newer era, ``old`` in the older. A
check passes, or says what came instead.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.driver import Driver, Failed
from conformance.fixture import SPACED, STEPS
from conformance.judge import Check

SERVERS = ("new", "old")
SESSIONS = 20
_BOUND_S = 30.0
_META = {
    "gateway": ("tool_execute", "tool_id", "args", "{}:{}"),
    "transparent": ("tool_execute", "tool_id", "args", "{}:{}"),
    "registry": ("call", "operation", "input", "/{}/{}"),
}


class Unexpected(Exception):
    """The thing that came instead."""


@dataclass(frozen=True, slots=True)
class Row:
    """A client at a face. *log* is the file in which the servers note calls that were cancelled."""

    client: Driver
    face: str
    log: Path

    def call_of(self, server: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.face == "namespaced":
            return {"name": f"{server}__{tool}", "arguments": dict(arguments)}
        meta_tool, name, of_arguments, form = _META[self.face]
        return {"name": meta_tool, "arguments": {name: form.format(server, tool), of_arguments: dict(arguments)}}

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return await self.client.do("call", **self.call_of(server, tool, arguments or {}))


async def tools(row: Row, server: str) -> None:
    """Names, and for the namespaced face schemas, headers and explicit hints."""
    listed = {tool["name"]: tool for tool in (await row.client.do("list"))["tools"]}
    if row.face != "namespaced":
        wanted = _META[row.face][0]
        _expect(wanted in listed, f"no {wanted} in {sorted(listed)}")
        return
    echo = listed.get(f"{server}__echo") or {}
    _expect(echo.get("inputSchema", {}).get("required") == ["text"], f"schema of echo: {echo}")
    _expect(echo.get("annotations", {}).get("destructiveHint") is False, f"hints of echo: {echo.get('annotations')}")
    region = listed.get(f"{server}__region", {}).get("inputSchema", {}).get("properties", {})
    _expect(region.get("region", {}).get("x-mcp-header") == "Region", f"region: {region}")


async def called(row: Row, server: str) -> None:
    _says(await row.call(server, "echo", {"text": "hello there"}), "hello there")
    _says(await row.call(server, "region", {"region": "north"}), "north")
    if server == "new":  # structured content that is no object is of the newer era
        _says(await row.call(server, "array"), "2")


async def links(row: Row, server: str) -> None:
    """A link in a result leads to a resource that can be read."""
    said = await row.call(server, "link")
    found = [part["uri"] for part in said["result"]["content"] if part["type"] == "resource_link"]
    _expect(bool(found), f"no link: {_short(said)}")
    _says(await row.client.do("read", uri=found[0]), "text of note://today")


async def errors(row: Row, server: str) -> None:
    """The model sees what to mend, what the tool said, and that a tool is unknown."""
    wrong = "INVALID_INPUT" if row.face == "registry" else "ARGS_INVALID"
    for tool, wanted in (("echo", wrong), ("fail", "it went wrong")):  # echo wants a text
        try:
            said = await row.call(server, tool)
        except Failed as error:
            raise Unexpected(f"{tool}: {error}") from None
        _says(said, wanted)
        _expect(_is_error(said), f"{tool}: not marked as an error: {_short(said)}")
    try:
        said = await row.call(server, "nothing")
    except Failed as error:
        _expect("nothing" in str(error), f"unknown tool: {error}")
    else:
        _expect(_is_error(said), f"unknown tool: {_short(said)}")


async def progress(row: Row, server: str) -> None:
    came = (await row.call(server, "steps"))["progress"]
    _expect(came == STEPS, f"{came} of {STEPS} notifications")


async def cancel(row: Row, server: str) -> None:
    before = _cancelled(row.log)
    await row.client.do("cancel", **row.call_of(server, "wait", {}))
    try:
        async with asyncio.timeout(_BOUND_S):
            while _cancelled(row.log) == before:  # noqa: ASYNC110 (another process writes it)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise Unexpected("the server saw no end of the call") from None


async def form(row: Row, server: str) -> None:
    await _asked(row, server, "form", "accept Ada")


async def url(row: Row, server: str) -> None:
    await _asked(row, server, "url", "accept")


async def resources(row: Row, server: str) -> None:
    """Listed, read, also one whose own URI is none, and by a template."""
    shown = _uris(await row.client.do("resources"), server)
    _says(await row.client.do("read", uri=shown["note"]), "text of note://today")
    _says(await row.client.do("read", uri=shown["spaced"]), f"text of {SPACED}")
    templates = [
        template["uriTemplate"]
        for template in (await row.client.do("templates"))["resourceTemplates"]
        if server in template["uriTemplate"]
    ]
    _expect(len(templates) == 1, f"templates: {templates}")
    _says(await row.client.do("read", uri=templates[0].replace("{day}", "monday")), "text of note://monday")


async def subscribe(row: Row, server: str) -> None:
    note = _uris(await row.client.do("resources"), server)["note"]
    came = await row.client.do("updated", uri=note, **row.call_of(server, "touch", {}))
    _expect(came == note, f"{came} for {note}")


async def prompts(row: Row, server: str) -> None:
    name = f"{server}__hello"
    listed = [prompt["name"] for prompt in (await row.client.do("prompts"))["prompts"]]
    _expect(name in listed, f"prompts: {listed}")
    _says(await row.client.do("prompt", name=name, arguments={"name": "Ada"}), "hello Ada")


async def complete(row: Row, server: str) -> None:
    said = await row.client.do("complete", name=f"{server}__hello", argument="name", value="A")
    _expect(said["completion"]["values"] == ["Ada"], _short(said))


async def sessions(row: Row, server: str) -> None:
    counts = await row.client.do("sessions", count=SESSIONS)
    _expect(len(counts) == SESSIONS and len(set(counts)) == 1, f"tools by session: {counts}")


Column = Callable[[Row, str], Awaitable[None]]

COLUMNS: Mapping[str, Column] = {
    "list": tools,
    "call": called,
    "errors": errors,
    "progress": progress,
    "cancel": cancel,
    "form": form,
    "url": url,
    "resources": resources,
    "links": links,
    "subscribe": subscribe,
    "prompts": prompts,
    "complete": complete,
    "sessions": sessions,
}
OF_FEATURES = frozenset({"resources", "links", "subscribe", "prompts", "complete"})
"""Columns of what only the namespaced face has."""
ONCE = frozenset({"sessions"})
"""Columns that have nothing to do with a server."""


async def checks(row: Row, column: str) -> list[Check]:
    """One for each server: its id is the server, its message what came instead. SKIPPED: the client cannot do that."""
    found = []
    for server in SERVERS[:1] if column in ONCE else SERVERS:
        try:
            await COLUMNS[column](row, server)
        except Failed as error:
            if "NotImplementedError" in str(error):
                return [Check(server, "SKIPPED", "the client has no such call")]
            found.append(Check(server, "FAILURE", str(error)))
        except (Unexpected, TimeoutError, KeyError, TypeError) as error:
            found.append(Check(server, "FAILURE", f"{type(error).__name__}: {error}"))
        else:
            found.append(Check(server, "SUCCESS"))
    return found


async def _asked(row: Row, server: str, mode: str, wanted: str) -> None:
    said = await row.call(server, mode)
    _says(said, wanted)
    _expect(said["asked"] == [mode], f"asked: {said['asked']}")


def _is_error(said: Mapping[str, Any]) -> bool:
    return said["result"].get("isError") is True


def _uris(listed: Mapping[str, Any], server: str) -> dict[str, str]:
    """Of the resources of *server*, by their own names."""
    own = [resource for resource in listed["resources"] if server in resource["uri"].partition("://")[0]]
    return {name: resource["uri"] for resource in own for name in ("note", "spaced") if name in resource["name"]}


def _says(said: object, wanted: str) -> None:
    _expect(wanted in json.dumps(said), f"no {wanted!r} in {_short(said)}")


def _expect(holds: bool, instead: str) -> None:
    if not holds:
        raise Unexpected(instead)


def _short(said: object) -> str:
    return json.dumps(said)[:300]


def _cancelled(log: Path) -> int:
    return log.read_text().count("cancelled") if log.exists() else 0
