"""Gateways of others in front of one upstream, started as their guides say, each in its own environment."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bench.catalogs import ROOT
from bench.execute_rows import BRIDGE, FASTMCP
from bench.peers import PINNED, Peer, install
from bench.quiet_process import quiet_process
from bench.raw_mcp import RawClient, raw_http, raw_stdio

INSTALLED: Mapping[str, str] = {BRIDGE: "mcp-proxy", FASTMCP: "fastmcp"}
"""By way, the name of its environment in ``bench.peers``."""

_SERVES = r"Uvicorn running on (http://[\w.:]+)"


def find_peer(way: str) -> Peer | str:
    """The peer, installed when it is not there yet; or a line that says why there is none."""
    name = INSTALLED[way]
    found = install(name)
    return found if isinstance(found, Peer) else f"{way} is left out: {found}"


def version_of(way: str) -> str:
    return PINNED[INSTALLED[way]][0].replace("==", " ")


def peer_client(
    way: str, peer: Peer, upstream: str | Sequence[str]
) -> AbstractAsyncContextManager[tuple[RawClient, int]]:
    """A client of the peer in front of *upstream*, a URL or a command line, and the peer's process."""
    if way == FASTMCP:
        given = [upstream] if isinstance(upstream, str) else upstream
        return _served(str(peer.python), str(ROOT / "bench" / "fastmcp_proxy.py"), *given)
    program = str(Path(peer.python).with_name("mcp-proxy"))
    if isinstance(upstream, str):
        # It serves HTTP only for servers over stdio. A server over HTTP is its client's over stdio.
        return raw_stdio([program, "--transport", "streamablehttp", upstream], ROOT)
    return _served(program, "--port", "0", "--", *upstream)


@asynccontextmanager
async def _served(*line: str) -> AsyncIterator[tuple[RawClient, int]]:
    async with quiet_process(*line) as process:
        url = (await process.wait_for(_SERVES)).group(1)
        async with raw_http(f"{url}/mcp", "handshake") as client:
            yield client, process.pid
