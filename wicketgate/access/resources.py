"""The resources of this service as issuers and clients know them: their URLs, documents and challenges (RFC 9728;
ACCESS-130 to ACCESS-134).

Each face of MCP is a resource, and so are the doors ``/engine/chat`` and ``/operations``; all other paths together are
``/console``. A token is good at a resource that it names in ``aud``. Addresses are built from ``server.public_url``
alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from wicketgate.access.issuer import Issuer, Verified

WELL_KNOWN = "/.well-known/oauth-protected-resource"

_OTHERS = "/console"
_RESOURCE = "{resource}"
REALM = 'Bearer realm="wicketgate"'


class Resources:
    """*public_url* is empty where none is configured; then there are no issuers either. *faces* are the names of the
    faces, *main* is the one at ``/mcp``."""

    def __init__(self, public_url: str, faces: Iterable[str], main: str) -> None:
        self._public_url = public_url.rstrip("/")
        parts = urlsplit(self._public_url)
        self._origin, self._prefix = f"{parts.scheme}://{parts.netloc}", parts.path
        both = ("/mcp", f"/mcp/{main}")
        self._paths: dict[str, tuple[str, ...]] = {
            "/mcp": both,
            **{f"/mcp/{face}": (f"/mcp/{face}",) for face in faces},
            f"/mcp/{main}": (both[1], both[0]),
            "/engine/chat": ("/engine/chat",),
            "/operations": ("/operations",),
            _OTHERS: (_OTHERS,),
        }
        self._documents = {f"{WELL_KNOWN}{self._prefix}{path}": path for path in self._paths}
        self._documents |= {WELL_KNOWN: "/mcp", f"{WELL_KNOWN}{self._prefix}": "/mcp"}
        self._audiences: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}

    def own(self, path: str) -> str:
        """Returns the path of the resource that *path* belongs to."""
        if path in self._paths:
            return path
        for door in ("/engine/chat", "/operations"):
            if path.startswith((f"{door}/", f"{door.rpartition('/')[0] or door}/")):
                return door
        return _OTHERS

    def is_for(self, verified: Verified, path: str) -> bool:
        """Returns whether the token is for the resource of *path*: one of its audiences is, to the letter."""
        key = verified.issuer.audience, self.own(path)
        allowed = self._audiences.get(key)
        if allowed is None:
            urls = [f"{self._public_url}{each}" for each in self._paths[key[1]]]
            allowed = frozenset(
                template.replace(_RESOURCE, url) for template in verified.issuer.audience for url in urls
            )
            # As many as there are audiences in the configuration, times the resources.
            self._audiences[key] = allowed
        return not allowed.isdisjoint(verified.audiences)

    def document(self, path: str, issuers: Sequence[Issuer]) -> Mapping[str, Any] | None:
        """Returns the metadata at *path*, which begins with ``/.well-known/``; None if there is none."""
        resource = self._documents.get(path)
        if resource is None or not issuers:
            return None
        scopes = list(dict.fromkeys(scope for issuer in issuers for scope in issuer.all_scopes()))
        return {
            "resource": f"{self._public_url}{resource}",
            "authorization_servers": [issuer.url for issuer in issuers],
            "bearer_methods_supported": ["header"],
            "resource_name": "Wicketgate",
            **({"scopes_supported": scopes} if scopes else {}),
        }

    def challenge(
        self, path: str, issuers: Sequence[Issuer], *, error: str = "", scopes: Sequence[str] | None = None
    ) -> bytes:
        """Returns the value of ``WWW-Authenticate``. *scopes* are those that the request needs; without them those that
        every request needs. Without issuers it names the scheme alone."""
        if not issuers:
            return REALM.encode()
        if scopes is None:
            scopes = list(dict.fromkeys(scope for issuer in issuers for scope in issuer.scopes))
        parts = [REALM]
        if error:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        parts.append(f'resource_metadata="{self._origin}{WELL_KNOWN}{self._prefix}{self.own(path)}"')
        return ", ".join(parts).encode("latin-1")
