"""What the meta-tools of every face share: reading their arguments, writing their answers (DESIGN §3 "Shapes")."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from wicketgate.errors import ArgsInvalid
from wicketgate.faces.surface import SurfaceResult
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.options import TokenCost, estimate_tokens
from wicketgate.results.envelope import ResultEnvelope


def read_fields(arguments: object, tool: str, known: Collection[str]) -> Mapping[str, Any]:
    """Those of *known* that were given. Raises ArgsInvalid for anything else."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise ArgsInvalid(f"The arguments of {tool} must be an object.")
    if unknown := sorted(str(key) for key in arguments if key not in known):
        raise ArgsInvalid(
            f"{tool} has no argument {unknown[0][:64]!r}. It takes: {', '.join(sorted(known))}.",
            details={"unknown": [key[:64] for key in unknown[:20]]},
        )
    return arguments


def read_text(fields: Mapping[str, Any], key: str) -> str:
    """Raises ArgsInvalid unless it is there and a string."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise ArgsInvalid(f"{key} is required and must be a string.")
    return value


def dry_run_json(dry: DryRun) -> dict[str, Any]:
    summary = "The arguments are valid. This was a dry run: nothing was called."
    checks = {"schema_validation": "pass"}
    if dry.needs_approval:
        summary += " The call itself needs the owner's approval."
        checks["approval"] = "required"
    envelope = ResultEnvelope(
        status="ok",
        summary=summary,
        facts=(),
        artifacts=(),
        provenance={"tool_id": dry.tool_id, **dry.notes},
    )
    return {
        **envelope.as_dict(),
        "dry_run": True,
        "tool_id": dry.tool_id,
        "upstream_name": dry.upstream_name,
        "args_valid": True,
        # The server's hints are never verified, and a dry run does not change that (S1 "Security Considerations").
        "annotations": {"verified": False},
        "checks": checks,
    }


def json_result(
    body: Mapping[str, Any], *, is_error: bool = False, lines: str = "", naive_chars: int = 0
) -> SurfaceResult:
    """*lines* is the text for MCP clients where it is not the JSON itself."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    cost = TokenCost(estimate_tokens(len(text)), estimate_tokens(naive_chars))
    return SurfaceResult(({"type": "text", "text": lines or text},), body, text, is_error, cost)
