"""Addresses of machines as they are compared."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_OF_ONE = 64
"""The bits of an IPv6 address that anyone who has it did not choose."""


def unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Returns the IPv4 address that an IPv6 one holds (``::ffff:10.0.0.1``), under which a socket of both kinds names
    its peers; any other address as it is."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def network_of(address: str) -> str:
    """Returns what is counted as one source: an IPv4 address, the network of 64 bits of an IPv6 one, and any other text
    as it is."""
    try:
        found = unmapped(ip_address(address.partition("%")[0]))
    except ValueError:
        return address
    return str(found) if found.version == 4 else str(ip_network((int(found), _OF_ONE), strict=False))
