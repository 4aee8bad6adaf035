"""The places that a URL of a stranger may lead to: what a server or an issuer names is asked at public addresses only.

A name is looked up once, and the connection is made to an address that was judged: a name that means another address a
moment later leads nowhere else.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from wicketgate.net.addresses import unmapped

_UNICAST = ip_network("2000::/3")
"""Public addresses of IPv6 are in no other network: not those that are local, nor those that lead to one of IPv4."""
_SPECIAL = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            # The platform below a virtual machine of Azure.
            "168.63.129.16/32",
            # Protocols (Teredo among them), documentation, 6to4.
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
"""Addresses for special purposes (IANA). A list of our own: what ``ipaddress`` takes for one differs between releases
of Python."""


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
        if address.version == 6 and address not in _UNICAST:
            return False
        return not any(address in network for network in _SPECIAL)


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
