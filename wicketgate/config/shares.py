"""Makes the shares from the settings: what is bounded in number, in all and for each actor."""

from collections.abc import Iterator
from dataclasses import dataclass

from wicketgate.access.shares import CountedShares, Shares
from wicketgate.config.settings import Settings


@dataclass(frozen=True, slots=True)
class GateShares:
    """*chat*: streams; *detached*: those among them that go on without a reader; *calls*: requests of MCP
    and of ``/operations``."""

    chat: Shares
    detached: Shares
    calls: Shares

    def __iter__(self) -> Iterator[Shares]:
        return iter((self.chat, self.detached, self.calls))


def make_shares(settings: Settings) -> GateShares:
    engine, mcp = settings.engine, settings.mcp
    return GateShares(
        CountedShares("chat", engine.max_streams, engine.max_streams_per_actor),
        CountedShares("detached", engine.max_streams, engine.max_detached_per_actor),
        CountedShares("calls", mcp.max_calls, mcp.max_calls_per_actor),
    )
