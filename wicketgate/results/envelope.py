"""What a model is shown of one tool call: the ResultEnvelope and its references (S0 §4.2, S1, DESIGN §3 "Results")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "partial", "error"]

SUMMARY_CHARS = 500


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """Where the whole of something can be read with ``tool_view``."""

    handle: str
    media_type: str
    label: str
    size_bytes: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "handle": self.handle,
            "media_type": self.media_type,
            "label": self.label,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class ResultEnvelope:
    """*summary* has at most 500 characters. *status* is partial when some of the answer could not be read as MCP."""

    status: Status
    summary: str
    facts: tuple[str, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """``{status, summary, facts, artifacts, provenance}``, new containers each time."""
        return {
            "status": self.status,
            "summary": self.summary,
            "facts": list(self.facts),
            "artifacts": [ref.as_dict() for ref in self.artifacts],
            "provenance": dict(self.provenance),
        }


def shorten(text: str, limit_chars: int) -> str:
    """At most *limit_chars* characters of *text*, ending in ``…`` if something was cut; always encodable as UTF-8."""
    if len(text) > limit_chars:
        text = text[: max(limit_chars - 1, 0)] + "…"[:limit_chars]
    return text.encode("utf-8", "replace").decode()
