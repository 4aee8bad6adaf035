"""Where a browsing session's seen cards live between calls (S0 §5; what a session is: DESIGN §3 "Browsing")."""

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol

from wicketgate.catalog.card import ChoiceCard


def session_key(kind: str, actor: str, name: str) -> str:
    """``<actor>/<session>``, both hashed: no name that a client chooses reaches another's session, and a store can
    tell whose sessions they are."""
    return f"{_hash([actor])}/{_hash([kind, actor, name])}"


def owner_of(session: str) -> str:
    """The part of a key that all sessions of one actor share."""
    return session.partition("/")[0]


def _hash(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class SessionStore(Protocol):
    """Seen cards by session key. A session lapses when it was not used for its time to live."""

    def order(self, session: str, cards: Sequence[ChoiceCard]) -> tuple[ChoiceCard, ...]:
        """*cards*, best first, in cache-stable order; they count as seen from now on."""
        ...

    def hydrated(self, session: str, tool_id: str) -> None:
        """A tool was hydrated or executed with success, so it counts as seen (S0 §5.1, §5.5)."""
        ...
