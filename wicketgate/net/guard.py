"""The places that a URL of a stranger may lead to: what a server or an issuer names is asked at public addresses only.

A name is looked up once, and the connection is made to an address that was judged: a name that means another address a
moment later leads nowhere else.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from wicketgate.net.addresses import unmapped

_EMBEDDING = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "::/96")))
"""IPv6 networks whose addresses lead to an IPv4 one (NAT64, Teredo, 6to4, compatible): none names a public server."""


@dataclass(frozen=True, slots=True)
class Guard:
    """*loopback*: this machine may be asked, over http too. *private* are hosts that the operator allows at any address
    and over http: names, ``*.example.com``, addresses, networks."""

    loopback: bool = False
    private: tuple[str, ...] = ()

    def allows_url(self, scheme: str, host: str) -> bool:
        """True if a request may go to *host* so: over http only if the operator named it, or to this machine."""
        if scheme == "https":
            return True
        return scheme == "http" and (self.trusts(host) or (self.loopback and is_loopback(host)))

    def allows_address(self, host: str, address: str) -> bool:
        """True if a connection for *host* may be made to *address*."""
        return self.trusts(host) or self._allows(ip_address(address.partition("%")[0]))

    def trusts(self, host: str) -> bool:
        """True if the operator named the host."""
        host = host.lower().rstrip(".")
        return any(_fits(entry.lower(), host) for entry in self.private)

    def _allows(self, address: IPv4Address | IPv6Address) -> bool:
        address = unmapped(address)
        if any(_fits(entry, str(address)) for entry in self.private):
            return True
        if address.is_loopback:
            return self.loopback
        if address.is_multicast or any(address in network for network in _EMBEDDING):
            return False
        return address.is_global


def is_loopback(host: str) -> bool:
    """True if *host* is written as this machine: ``localhost``, names below it, addresses of the loopback."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return unmapped(ip_address(host)).is_loopback
    except ValueError:
        return False


def _fits(entry: str, host: str) -> bool:
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    if entry == host:
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False
