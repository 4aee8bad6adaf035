"""Under which identity, trace and browsing session the tools of one chat request are called (DESIGN §3 "Browsing")."""

from wicketgate.access.identity import Identity
from wicketgate.engine.contract import ChatRequest
from wicketgate.ports import CallContext, session_key


def call_context(request: ChatRequest, identity: Identity) -> CallContext:
    """The session is the conversation's, or else this run's alone."""
    metadata = request.metadata
    named = metadata.conversation_id is not None
    session = session_key(
        "conversation" if named else "run", identity.actor, metadata.conversation_id or metadata.correlation_id
    )
    return CallContext(identity, metadata.correlation_id, session)
