"""Sealed approvals: an id that only we can have made, for one actor, one tool, one set of arguments, for some time.

Nothing is kept of what was asked, because the id itself holds it. That it is used once is the business of the desk,
by its *uid*.
"""

from dataclasses import dataclass

from wicketgate.access.seal import Seal, Sealed

PREFIX = "apr_"
_PURPOSE = "approval"
_MAX_ID_CHARS = 1_000
_DIGEST_CHARS = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be approved: the tool by its id, whose hash ends with its schema; the digest in hex of the arguments
    that would be sent; and the digest of the call as the model made it."""

    tool_id: str
    arguments: str
    call: str


@dataclass(frozen=True, slots=True)
class Approval:
    """An id that was opened. *sealed* has its expiry, and the *uid* that must not be used twice."""

    asked: Asked
    sealed: Sealed


class ApprovalSeal:
    """Approvals under *seal*, each good for *ttl_s*."""

    def __init__(self, seal: Seal, *, ttl_s: float = 3_600.0) -> None:
        self._seal = seal
        self._ttl_s = ttl_s

    def issue(self, actor: str, asked: Asked) -> str:
        return PREFIX + self._seal.seal(_PURPOSE, actor, asked.arguments + asked.call + asked.tool_id, self._ttl_s)

    def open(self, actor: str, approval_id: str) -> Approval | None:
        """Returns None for what we did not issue to *actor*. It may have expired."""
        if not approval_id.startswith(PREFIX) or len(approval_id) > _MAX_ID_CHARS:
            return None
        sealed = self._seal.open(_PURPOSE, actor, approval_id.removeprefix(PREFIX))
        if sealed is None:
            return None
        digests, tool_id = sealed.text[: 2 * _DIGEST_CHARS], sealed.text[2 * _DIGEST_CHARS :]
        return Approval(Asked(tool_id, digests[:_DIGEST_CHARS], digests[_DIGEST_CHARS:]), sealed)

    def expired(self, approval: Approval) -> bool:
        return self._seal.expired(approval.sealed)
