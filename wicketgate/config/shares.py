"""Makes the shares from the settings: what is bounded in number, in all and for each actor.

A limit in all protects the memory and the core of a process, so each process counts it for itself. The limit of an
actor is the operator's, and holds in all processes that share ``storage.url`` (ACCESS-97). Without one, an actor's part
of what a process has follows from what is free there, and nothing is asked of a store.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from wicketgate.access.shares import CountedShares, Shares
from wicketgate.config.settings import Settings
from wicketgate.storage.group_shares import LINGER_S, GroupShares, PlaceStore
from wicketgate.storage.measures import StorageMeasures

if TYPE_CHECKING:
    from wicketgate.storage.redis.client import RedisLink


@dataclass(frozen=True, slots=True)
class GateShares:
    """*chat*: streams; *detached*: those among them that go on without a reader; *calls*: requests of MCP
    and of ``/operations``; *running*: calls without a request. *store*: the one in which processes count together."""

    chat: Shares
    detached: Shares
    calls: Shares
    running: Shares
    store: PlaceStore | None = None

    def __iter__(self) -> Iterator[Shares]:
        """Those that count themselves; of calls without a request their holder does."""
        return iter((self.chat, self.detached, self.calls))

    async def aclose(self) -> None:
        """Gives back what is still held, for the other processes."""
        for shares in (*self, self.running):
            if isinstance(shares, GroupShares):
                await shares.aclose()
        if self.store is not None:
            await self.store.aclose()


def make_shares(
    settings: Settings, store: PlaceStore | None = None, measures: StorageMeasures | None = None
) -> GateShares:
    """Makes the shares, which count actors in *store*; in this process if it is None."""
    engine, mcp = settings.engine, settings.mcp
    fail = (measures or StorageMeasures()).fail

    def made(kind: str, most: int, per_actor: int | None, linger_s: float = 0.0) -> Shares:
        if store is None or per_actor is None:
            return CountedShares(kind, most, per_actor)
        return GroupShares(kind, most, per_actor, store, fail, linger_s=linger_s)

    return GateShares(
        made("chat", engine.max_streams, engine.max_streams_per_actor),
        made("detached", engine.max_streams, engine.max_detached_per_actor),
        # One is taken for each request, most of them for milliseconds.
        made("calls", mcp.max_calls, mcp.max_calls_per_actor, LINGER_S),
        made("running", settings.tasks.max_running, settings.tasks.max_running_per_actor),
        store,
    )


def make_place_store(
    settings: Settings, member: str, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> PlaceStore | None:
    """Makes the store in which the processes of ``storage.url`` count together; None if it is in memory. Raises
    ConfigError."""
    if redis is not None:
        from wicketgate.storage.redis.places import RedisPlaces

        return RedisPlaces(redis, member)
    file = settings.storage.sqlite_file
    if file is None:
        return None
    from wicketgate.storage.sqlite_places import SQLitePlaces

    return SQLitePlaces(file, member, time, measures)
