"""The result of a tool call as a model is shown it (S0 §4.2, S1, DESIGN §3 "Results")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "partial", "error"]

SUMMARY_CHARS = 500


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A reference to bytes that ``tool_view`` can read."""

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
    """*summary* has at most 500 characters. *status* is partial when some of the result could not be read as MCP."""

    status: Status
    summary: str
    facts: tuple[str, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns ``{status, summary, facts, artifacts, provenance}`` in new containers."""
        return {
            "status": self.status,
            "summary": self.summary,
            "facts": list(self.facts),
            "artifacts": [ref.as_dict() for ref in self.artifacts],
            "provenance": dict(self.provenance),
        }


def shorten(text: str, limit_chars: int) -> str:
    """Cuts *text* to *limit_chars* characters, with ``…`` at the end of a cut; the result can be encoded as UTF-8."""
    if len(text) > limit_chars:
        text = text[: max(limit_chars - 1, 0)] + "…"[:limit_chars]
    return text.encode("utf-8", "replace").decode()
