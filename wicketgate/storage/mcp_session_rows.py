"""The lasting facts of a session of the handshake era as bytes, for the stores outside of memory (FACE-115)."""

import json
from collections.abc import Collection

from wicketgate.faces.mcp.kept_sessions import KeptSession
from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS


def packed_facts(session: KeptSession) -> bytes:
    """Actor, version and client, which never change. Any string is kept, even invalid Unicode."""
    facts = {"actor": session.actor, "version": session.version, "client": dict(session.client)}
    return json.dumps(facts, separators=(",", ":")).encode("ascii")


def session_of_facts(facts: bytes, key_id: str, log_level: str, uris: Collection[str]) -> KeptSession | None:
    """None for what is damaged, or of a version of the protocol that is not known here: replicas may be newer."""
    try:
        read = json.loads(facts)
        actor, version, client = read["actor"], read["version"], read["client"]
    except (ValueError, KeyError, TypeError):
        return None
    if not (isinstance(actor, str) and version in HANDSHAKE_PROTOCOL_VERSIONS and isinstance(client, dict)):
        return None
    return KeptSession(actor, key_id, version, client, log_level, frozenset(uris))
