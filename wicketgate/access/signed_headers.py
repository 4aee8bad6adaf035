"""Identity headers that a trusted gateway in front has signed (ACCESS-140 to ACCESS-143).

The gateway authenticates callers itself, and sends ``X-Actor-ID`` and ``X-Actor-Permissions`` with
``X-Actor-Signature: t=<seconds since the epoch>,v1=<hex>``: HMAC-SHA256 over version, time, method, target, actor and
permissions, one to a line. Both must hold, the signature and the address that the connection comes from.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address

from wicketgate.access.identity import Identity, issuer_key_id, parse_permissions
from wicketgate.access.issuer import actor_of
from wicketgate.net.addresses import unmapped

ACTOR, PERMISSIONS, SIGNATURE = b"x-actor-id", b"x-actor-permissions", b"x-actor-signature"

IDENTITY_HEADERS = frozenset({ACTOR, PERMISSIONS, SIGNATURE})

_SIGNED = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")
_MAX_SUBJECT = 1_024
_MAX_AGE_S = 60.0
"""Between signature and request, in both directions: clocks differ, and a signature can be replayed in that time."""

FRONT = "front"
"""The beginning of the gateway's actors (``front:ann``), as the name of an issuer is of its own."""


@dataclass(frozen=True, slots=True)
class TrustedGateway:
    """*name* begins the names of its actors. *permissions* are the most that its headers give."""

    name: str
    networks: tuple[IPv4Network | IPv6Network, ...]
    secrets: tuple[bytes, ...] = field(repr=False)
    permissions: tuple[str, ...] = ("tools:*",)

    def trusts(self, peer: str) -> bool:
        """Returns whether a connection from the address *peer* may be the gateway's."""
        try:
            address = unmapped(ip_address(peer))
        except ValueError:
            return False
        return any(address in network for network in self.networks)

    def identity(self, headers: Sequence[tuple[bytes, bytes]], method: str, target: str, now: float) -> Identity | None:
        """Returns who the gateway says that the caller is; None if its headers do not hold: one is missing, or there
        twice or in another spelling, or the signature is wrong or too old."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            plain = name.lower().replace(b"_", b"-")
            if plain in IDENTITY_HEADERS:
                found.setdefault(plain, []).append(value if plain == name else b"")
        if set(found) != IDENTITY_HEADERS or any(len(values) != 1 for values in found.values()):
            return None
        actor, granted, signature = (found[name][0].decode("latin-1") for name in (ACTOR, PERMISSIONS, SIGNATURE))
        signed = _SIGNED.fullmatch(signature)
        if signed is None or abs(now - int(signed[1])) > _MAX_AGE_S:
            return None
        expected = (sign(secret, int(signed[1]), method, target, actor, granted) for secret in self.secrets)
        if not any(hmac.compare_digest(signature, each) for each in expected):
            return None
        try:
            permissions = parse_permissions(granted)
        except ValueError:
            return None
        if not 0 < len(actor) <= _MAX_SUBJECT:
            return None
        most = Identity("", self.permissions)
        return Identity(
            actor_of(self.name, actor),
            tuple(dict.fromkeys(each for each in permissions if most.allows(each))),
            issuer_key_id(self.name),
            issuer=self.name,
        )


def sign(secret: bytes, at: int, method: str, target: str, actor: str, permissions: str) -> str:
    """Returns the value of ``X-Actor-Signature``. *target* is path and query as they are sent."""
    text = "\n".join(("v1", str(at), method, target, actor, permissions))
    return f"t={at},v1={hmac.new(secret, text.encode('latin-1'), hashlib.sha256).hexdigest()}"
