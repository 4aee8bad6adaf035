"""The tokens of one grant, as an issuer's token endpoint gave them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tokens:
    """*expires_at* is in seconds since the epoch; None where the issuer named no life. *refresh_token* and *id_token*
    are empty if there is none. *client_id* is the registration that the tokens were issued to."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    scopes: frozenset[str] = frozenset()
    expires_at: float | None = None
    id_token: str = field(default="", repr=False)
    issuer: str = ""
    resource: str = ""
    client_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return a value for JSON, from which ``tokens_of`` makes equal tokens."""
        return {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "scopes": sorted(self.scopes),
            "expires_at": self.expires_at,
            "id_token": self.id_token,
            "issuer": self.issuer,
            "resource": self.resource,
            "client_id": self.client_id,
        }


def tokens_of(value: Any) -> Tokens:
    """Make tokens of what ``as_dict`` returned. Raises ValueError."""
    try:
        scopes, expires_at = frozenset(map(str, value["scopes"])), value["expires_at"]
        texts = {name: value[name] for name in ("access_token", "refresh_token", "id_token", "issuer")}
        texts |= {name: value[name] for name in ("resource", "client_id")}
    except (KeyError, TypeError):
        raise ValueError("not the tokens of a grant") from None
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(expires_at, float | int | None):
        raise ValueError("not the tokens of a grant")
    return Tokens(scopes=scopes, expires_at=expires_at, **texts)


class InvalidGrant(Exception):
    """The issuer takes the refresh token no more: its owner has to log in anew."""


class Unreachable(Exception):
    """The issuer gave no answer that settles anything. The tokens may be tried again later."""


Refresh = Callable[[Tokens], Awaitable[Tokens]]
"""Exchange the refresh token for new tokens. An answer without a new refresh token keeps the former. Raises
InvalidGrant and Unreachable."""
