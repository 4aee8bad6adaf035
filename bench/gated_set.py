"""A routing set behind the gateway face, in process: each of its servers is an upstream, and every tool can be run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.routing_sets import Tool, namespaces
from wicketgate.access.identity import Identity
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.surface import SurfaceResult
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

ROOT = "/"


@dataclass(frozen=True, slots=True)
class Card:
    """*opens*: the path of a level, or the key of a tool. *says*: what a model can read of it."""

    opens: str
    namespace: str
    says: str


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of ``tool_browse``, in the order in which it is read. *text* is all that a model is shown."""

    tools: tuple[Card, ...]
    levels: tuple[Card, ...]
    hint: str
    text: str

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(card.opens for card in self.tools)


class GatedSet:
    """Make one by ``gated``."""

    def __init__(self, runtime: ProxyRuntime, keys: Mapping[str, str]) -> None:
        """*keys*: by tool id, the key of the set."""
        self._runtime = runtime
        self._face = GatewayFace(runtime)
        self._keys = keys
        self._ids = {key: tool_id for tool_id, key in keys.items()}
        self._pages: dict[str, Page] = {}
        self._places: dict[str, tuple[str, ...]] = {}

    async def browse(self, arguments: Mapping[str, Any], session: str = "bench") -> Page:
        """The answer to these arguments of ``tool_browse``. Raises RuntimeError when it is an error."""
        path = arguments.get("path")
        if path is None:
            return await self._asked(arguments, session)
        # The same in every session, and the largest answers of all.
        if path not in self._pages:
            self._pages[path] = await self._asked(arguments, session)
        return self._pages[path]

    async def execute(self, key: str, session: str) -> bool:
        """Run a tool as a model does after a browse. Returns whether it ran: not one whose own schema cannot be used.

        Raises RuntimeError for any other failure.
        """
        result = await self._face.call("tool_execute", {"tool_id": self._ids[key], "args": {}}, _context(session))
        if result.is_error and result.structured["error"] != "SCHEMA_INVALID":
            raise RuntimeError(f"{key}: {result.text[:300]}")
        return not result.is_error

    async def attempt(self, key: str, args: Mapping[str, Any]) -> SurfaceResult:
        """The answer to a call with *args*, whatever it is."""
        return await self._face.call("tool_execute", {"tool_id": self._ids[key], "args": args}, _context("bench"))

    async def settle(self) -> None:
        """Wait until what was executed is learned."""
        await self._runtime.learning.settle()

    async def places(self) -> Mapping[str, tuple[str, ...]]:
        """By key, the paths that lead to a tool, from its namespace to the level that shows it."""
        if not self._places:
            await self._walk(ROOT, ())
        return self._places

    async def _walk(self, path: str, above: tuple[str, ...]) -> None:
        page = await self.browse({"path": path})
        self._places.update(dict.fromkeys(page.keys, above))
        for level in page.levels:
            await self._walk(level.opens, (*above, level.opens))

    async def _asked(self, arguments: Mapping[str, Any], session: str) -> Page:
        result = await self._face.call("tool_browse", arguments, _context(session))
        if result.is_error:
            raise RuntimeError(f"{arguments}: {result.text[:300]}")
        body = result.structured
        levels = [card for card in body["cards"] if card["kind"] == "internal"]
        tools = [card for card in body["cards"] if card["kind"] != "internal"]
        return Page(
            tuple(Card(self._keys[card["id"]], card["namespace"], _read(card)) for card in tools),
            tuple(Card(card["id"], card["namespace"], _read(card)) for card in levels),
            body.get("hint", ""),
            result.content[0]["text"],
        )


async def gated(tools: Sequence[Tool], options: RuntimeOptions | None = None, *, strict: bool = False) -> GatedSet:
    """The tools take any arguments, so that the benchmarks need not make up any, unless *strict*."""
    names = namespaces(tools)
    by_server: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names.values()}
    keys: dict[tuple[str, str], str] = {}
    for tool in tools:
        server = names[tool["server"]]
        keys.setdefault((server, tool["name"]), tool["key"])
        by_server[server].append(_definition(tool, strict))
    fleet = MultiplexUpstream([StubUpstream(given, _done, name=server) for server, given in by_server.items()])
    runtime = ProxyRuntime(fleet, options)
    await runtime.refresh_catalog()
    items = runtime.catalog().items.values()
    return GatedSet(runtime, {item.id: keys[item.server, item.upstream_name] for item in items})


def _definition(tool: Tool, strict: bool) -> Mapping[str, Any]:
    schema = {key: value for key, value in (tool.get("inputSchema") or {}).items() if strict or key != "required"}
    return {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": {"type": "object", "properties": {}, **schema},
    }


async def _done(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": "done"}]}


def _read(card: Mapping[str, Any]) -> str:
    return f"{card['id']} {card['description']}"


def _context(session: str) -> CallContext:
    return CallContext(Identity("bench", ("tools:*",)), "bench", session)
