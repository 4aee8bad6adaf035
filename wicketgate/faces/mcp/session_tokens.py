"""Sessions of the handshake era as sealed tokens: ``Mcp-Session-Id`` holds what client and gate agreed on (FACE-115).

A token opens in every process with the same ring of keys, for the actor and the face that it was issued to. It has
fewer than 1,500 characters, because proxies bound the lines of a header.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wicketgate.access.seal import Seal, SealedText
from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS

LIFE_S = 86_400.0
"""The life of a token. Its client initializes again afterwards."""
MAX_CHARS = 1_500

_PURPOSE = "mcp session"
_NAME_BYTES = 64
_PASSED = ("elicitation", "sampling", "roots", "extensions")
"""The capabilities that tool servers are shown (FACE-63)."""


@dataclass(frozen=True, slots=True)
class McpSession:
    """*client* is the part of the params of ``initialize`` that the gate uses. *log_level* is empty until the client
    sets one. *uris* are the resources that it has subscribed to."""

    actor: str
    version: str
    client: Mapping[str, Any]
    log_level: str = ""
    uris: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What the client changes; the rest stays. *follow* and *unfollow* are URIs of resources."""

    log_level: str = ""
    follow: str = ""
    unfollow: str = ""


class SessionTokens:
    """Issues and opens the tokens of one *face*."""

    def __init__(self, face: str, seal: Seal) -> None:
        self._purpose = f"{_PURPOSE} {face}"
        self._seal = seal

    def issue(self, actor: str, version: str, client: Mapping[str, Any]) -> str:
        """*client* are the params of ``initialize``, valid and in wire JSON."""
        info, declared = client["clientInfo"], client.get("capabilities") or {}
        token = ""
        # Long ones are those of extensions, with their settings.
        for kept in (_PASSED, _PASSED[:-1], ()):
            capabilities = {name: declared[name] for name in kept if declared.get(name) is not None}
            facts = [version, _short(info["name"]), _short(info["version"]), capabilities]
            text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
            token = self._seal.seal(self._purpose, _bounded(actor), text, LIFE_S)
            if len(token) < MAX_CHARS:
                break
        return token

    def open(self, actor: str, token: str) -> tuple[SealedText, McpSession] | None:
        """Returns the session of *actor*, and the sealed text, whose *uid* is its id. Returns None for a token that was
        not issued to *actor* at this face, has expired, or has a version that is unknown here."""
        if len(token) > MAX_CHARS or (sealed := self._seal.open(self._purpose, _bounded(actor), token)) is None:
            return None
        version, name, client_version, capabilities = json.loads(sealed.text)
        if self.expired(sealed) or version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return None
        info = {"name": name, "version": client_version}
        client = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
        return sealed, McpSession(actor, version, client)

    def expired(self, sealed: SealedText) -> bool:
        return self._seal.expired(sealed)


def _short(name: str) -> str:
    """Control characters take six bytes and more in JSON."""
    printable = "".join(filter(str.isprintable, name[:_NAME_BYTES]))
    return printable.encode()[:_NAME_BYTES].decode(errors="ignore")


def _bounded(actor: str) -> str:
    return hashlib.sha256(actor.encode("utf-8", "surrogatepass")).hexdigest()
