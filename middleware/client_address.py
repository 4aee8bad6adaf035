"""The address of the client: that of the socket, or behind trusted proxies the one that they name (ACCESS-31 to
ACCESS-33).

Each proxy appends the address that a request came from, so the entries are read from the right: the first one that is
not a trusted proxy is the client. What stands to the left of it is the client's own word, and is not read.
``X-Forwarded-For`` is preferred to ``Forwarded`` (RFC 7239). A proxy that writes one of them has to remove the other,
or it passes on what the client wrote.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_network

from starlette.types import Scope

from wicketgate.net.addresses import unmapped

Headers = Sequence[tuple[bytes, bytes]]

UNKNOWN = "unknown"
"""The client of a request of which a trusted proxy does not say where it came from. It is no address, so not local."""

_PEER = "wicketgate.peer"

FORWARDING_HEADERS = frozenset({b"x-forwarded-for", b"forwarded"})

_MAX_HOPS = 32
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = rf'{_NAME}=(?:{_NAME}|"(?:[^"\\]|\\.)*")'
_LAST_ELEMENT = re.compile(rf"(?:^|,)[ \t]*((?:{_PAIR})(?:;(?:{_PAIR})?)*)[ \t]*$")
_NAMED_PAIR = re.compile(rf'({_NAME})=(?:({_NAME})|"((?:[^"\\]|\\.)*)")')
_NODE = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+))(?::(?:[0-9]{1,5}|_[0-9A-Za-z._-]+))?")


class TrustedProxies:
    """*networks* are addresses and networks, as in ``server.trusted_proxies``."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ip_network(each) for each in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            ip = unmapped(ip_address(address))
        except ValueError:
            return False
        return any(ip in network for network in self._networks)


def client_of(peer: str, headers: Headers, proxies: TrustedProxies) -> str:
    """Returns the client's address, of a request that came from the address *peer*; UNKNOWN if it cannot be read."""
    if not proxies.trusts(peer):
        return peer
    client = peer
    for hops, entry in enumerate(_entries(headers)):
        address = _address(entry)
        if address is None or hops == _MAX_HOPS:
            return UNKNOWN
        client = address
        if not proxies.trusts(address):
            break
    return client


def from_client(scope: Scope, proxies: TrustedProxies) -> Scope:
    """Returns *scope* with the client's address in ``scope["client"]``, with port 0 if a proxy named it.

    The headers of a trusted peer have been read then, and are removed. Those of others stay, and nothing reads them but
    the check that a caller is on this machine.
    """
    peer = scope.get("client")
    if not peer or not proxies.trusts(peer[0]):
        return scope
    client = client_of(peer[0], scope["headers"], proxies)
    headers = [(key, value) for key, value in scope["headers"] if key not in FORWARDING_HEADERS]
    client_and_port = peer if client == peer[0] else (client, 0)
    return {**scope, "client": client_and_port, _PEER: peer[0], "headers": headers}


def peer_of(scope: Scope) -> str:
    """Returns the address that the connection comes from, whatever its headers say; empty for a Unix socket."""
    client = scope.get("client")
    peer: str = scope.get(_PEER) or (client[0] if client else "")
    return peer


def _entries(headers: Headers) -> Iterator[str]:
    """The addresses that the proxies named, the last one first; an empty text for an entry without one."""
    lines = [value.decode("latin-1") for key, value in headers if key == b"x-forwarded-for"]
    if lines:
        for line in reversed(lines):
            yield from (entry.strip() for entry in reversed(line.split(",")))
        return
    for line in reversed([value.decode("latin-1") for key, value in headers if key == b"forwarded"]):
        yield from _elements(line)


def _elements(line: str) -> Iterator[str]:
    """The ``for`` of each element of a ``Forwarded`` line, the last one first."""
    if not line.strip():
        yield ""
    while line.strip():
        found = _LAST_ELEMENT.search(line)
        if found is None:
            yield ""
            return
        nodes = [token or quoted for name, token, quoted in _NAMED_PAIR.findall(found[1]) if name.lower() == "for"]
        yield nodes[0] if len(nodes) == 1 else ""
        line = line[: found.start()]


def _address(node: str) -> str | None:
    """Returns the address in its usual spelling. *node* may have a port; an IPv6 address needs brackets then. It has no
    zone (RFC 7239 §6), which may be any text."""
    if "%" in node:
        return None
    found = _NODE.fullmatch(node)
    try:
        return str(unmapped(ip_address((found["six"] or found["four"]) if found else node)))
    except ValueError:
        return None
