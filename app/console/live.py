"""The news of a gate for open pages: calls as they end, states of servers, catalogs (OPS-226, OPS-227).

Each page has a queue of its own. One that does not read in time is told that it has missed something.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.catalog.tool_id import parse_tool_id
from wicketgate.errors import CatalogError
from wicketgate.gate import Gate
from wicketgate.gateway.archive import handle_parts
from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.upstream_reports import UpstreamReport

MOST_WAITING = 256
MOST_PAGES = 64
MOST_PAGES_OF_ACTOR = 8

News = tuple[str, Mapping[str, Any]]
"""The name of an event, and its data."""

Readable = Callable[[str, str, str], bool]
"""The test of a record that one caller may read, by its actor, tool and server."""

GAP: News = ("gap", {})


class TooManyPages(Exception):
    """No further page can follow the news now."""


class Feed:
    """Hands the news on to the pages that follow. Use from one event loop only."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._pages: list[Page] = []
        self._looking = False
        self._ended = False
        self._follow: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._following: asyncio.Task[None] | None = None
        gate.drain.follow(self.end)
        gate.records.traffic.listen(self._called)
        gate.records.traffic.listen_to_cost(self._cost)
        gate.runtime.changes.watch(self._catalog)

    def open(self, identity: Identity) -> "Page":
        """A page of this caller, which hears what it may see. Raises TooManyPages."""
        own = sum(page.identity.actor == identity.actor for page in self._pages)
        if self._ended or len(self._pages) >= MOST_PAGES or own >= MOST_PAGES_OF_ACTOR:
            raise TooManyPages
        if not self._looking:
            # The states of upstreams are polled from here on, which a gate that nobody looks at is spared.
            self._looking = True
            self._gate.lifecycle.reports.listen(self._upstream)
        page = Page(identity, self._left)
        self._pages.append(page)
        if self._following is None and self._follow is not None:
            self._following = asyncio.create_task(self._follow(), name="news for pages")
        return page

    def while_open(self, follow: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs *follow* in a task while pages are open: a gate that nobody looks at is spared its cost."""
        self._follow = follow

    def _left(self, page: "Page") -> None:
        self._pages.remove(page)
        if not self._pages and self._following is not None:
            self._following.cancel()
            self._following = None

    def end(self) -> None:
        """End all streams, which would otherwise keep a stop waiting; no page is opened any more."""
        self._ended = True
        for page in list(self._pages):
            page.close()

    def tell(
        self,
        event: str,
        data: Mapping[str, Any],
        actor: str | None = None,
        also: Callable[[Identity], bool] = lambda identity: False,
    ) -> None:
        """Tell pages that may read the whole gate, and those of *actor*; with None, of everybody. *also* says of others
        that they hear it."""
        for page in self._pages:
            if actor is None or page.everything or page.identity.actor == actor or also(page.identity):
                page.put((event, data))

    def _called(self, record: AuditRecord) -> None:
        for page in self._pages:
            if may_read(self._gate, page.identity, record.actor, record.tool_id, record.server):
                page.put(("call", call_news(record)))

    def _cost(self) -> None:
        traffic = self._gate.records.traffic
        for page in self._pages:
            if page.everything:
                cost = {"given": traffic.cost.shown, "naive": traffic.cost.naive}
                page.put_latest(("tokens", {**cost, "meta": dict(traffic.meta)}))

    def _upstream(self, report: UpstreamReport) -> None:
        for page in self._pages:
            if page.everything:
                page.put(("server", {"name": report.name, "state": report.phase, "error": report.error}))

    def _catalog(self) -> None:
        self.tell("catalog", {"version": self._gate.runtime.catalog().version})


class Page:
    """One page that follows: call ``next`` until it gives nothing, and ``close`` at the end."""

    def __init__(self, identity: Identity, leave: Callable[["Page"], None]) -> None:
        self.identity = identity
        self.everything = identity.allows("ops:read")
        self._leave = leave
        self._news: deque[News] = deque()
        self._come = asyncio.Event()
        self._open = True

    def put(self, news: News) -> None:
        if len(self._news) >= MOST_WAITING:
            self._news.clear()
            news = GAP
        self._news.append(news)
        self._come.set()

    def put_latest(self, news: News) -> None:
        """As ``put``, in place of the last one if that is of the same kind and still waits."""
        if self._news and self._news[-1][0] == news[0]:
            self._news[-1] = news
        else:
            self.put(news)

    async def next(self) -> list[News]:
        """All that is new, as soon as there is something; nothing once the page is closed."""
        await self._come.wait()
        self._come.clear()
        news = list(self._news)
        self._news.clear()
        return news

    def close(self) -> None:
        if self._open:
            self._open = False
            self._leave(self)
            self._news.clear()
            self._come.set()


def may_read(gate: Gate, identity: Identity, actor: str, tool_id: str, server: str) -> bool:
    """Returns whether a record is one for *identity*: with ``ops:read`` any; otherwise one of its actor, about a tool
    that this key may use, or about a server with such a tool (ACCESS-274)."""
    if identity.allows("ops:read") or actor != identity.actor:
        return identity.allows("ops:read")
    may_use = gate.runtime.may_still_use
    for named in (tool_id, handle_parts(tool_id)[1]):
        if name_of(named) != named:
            return may_use(named, identity)
    # No tool, but maybe a path below a server.
    server = server or tool_id.lstrip("/").partition("/")[0].partition(":")[0]
    known = [item.id for item in gate.runtime.catalog().tools.values() if server in (item.server, item.namespace)]
    return not known or any(may_use(each, identity) for each in known)


def call_news(record: AuditRecord) -> dict[str, Any]:
    return {
        "id": record.call_id,
        "at": record.at,
        "operation": record.operation,
        "tool_id": record.tool_id,
        "name": name_of(record.tool_id),
        "server": record.server,
        "actor": record.actor,
        "outcome": record.outcome,
        "tool": record.tool,
        "code": record.code,
        "duration_ms": record.duration_ms,
        "left": record.transport != "none",
    }


def name_of(tool_id: str) -> str:
    """The name part of a tool's id; the whole text if it is none."""
    try:
        return parse_tool_id(tool_id).name
    except CatalogError:
        return tool_id
