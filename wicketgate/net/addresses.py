"""Addresses of machines as they are compared."""

from ipaddress import IPv4Address, IPv6Address


def unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Returns the IPv4 address that an IPv6 one holds (``::ffff:10.0.0.1``), under which a socket of both kinds names
    its peers; any other address as it is."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
