"""Gateways of others in front of one upstream, started as their guides say, each in its own environment."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.catalogs import ROOT
from bench.cpu import MEASURED, pin
from bench.execute_rows import BRIDGE, FASTMCP
from bench.peers import PINNED, Peer, install
from bench.quiet_process import quiet_process

INSTALLED: Mapping[str, str] = {BRIDGE: "mcp-proxy", FASTMCP: "fastmcp"}
"""By way, the name of its environment in ``bench.peers``."""

_SERVES = r"Uvicorn running on (http://[\w.:]+)"


def find_peer(way: str) -> Peer | str:
    """The peer, installed when it is not there yet; or why there is none."""
    return install(INSTALLED[way])


def version_of(way: str) -> str:
    return PINNED[INSTALLED[way]][0].replace("==", " ")


@asynccontextmanager
async def peer_target(
    way: str, peer: Peer, upstream: str | Sequence[str]
) -> AsyncIterator[tuple[str | list[str], int | None]]:
    """Starts the peer in front of *upstream* (a URL or a command line). Yields the URL to connect to, with the
    process id of the peer, or a command line with which each client starts its own peer."""
    if way == FASTMCP:
        given = [upstream] if isinstance(upstream, str) else upstream
        line = [str(peer.python), str(ROOT / "bench" / "fastmcp_proxy.py"), *given]
    else:
        program = str(Path(peer.python).with_name("mcp-proxy"))
        if isinstance(upstream, str):
            # It serves HTTP only for servers over stdio. A server over HTTP is its client's over stdio.
            yield [program, "--transport", "streamablehttp", upstream], None
            return
        line = [program, "--port", "0", "--", *upstream]
    async with quiet_process(*line) as process:
        url = (await process.wait_for(_SERVES)).group(1)
        pin(process.pid, MEASURED)
        yield url, process.pid
