"""What a result costs a model in tokens, noted with every call (gatekit "token usage").

Estimated at four characters a token: exact counts are kept for what has to fit a budget.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from wicketgate.gateway.meter import estimate_tokens
from wicketgate.plugin_api import Continue, MiddlewarePlugin, Request, Result
from wicketgate.results.firewall import is_bulky

META_KEY = "wicketgate/tokens"


class TokenUsage(MiddlewarePlugin):
    """Puts ``{"arguments", "result"}`` under ``_meta["wicketgate/tokens"]`` of the result, and into the record."""

    async def on_result(self, request: Request, result: Result) -> Continue:
        seen = (request.arguments, _shown(result))
        counted = await asyncio.to_thread(_tokens, *seen) if is_bulky(seen) else _tokens(*seen)
        told = dict(zip(("arguments", "result"), counted, strict=True))
        meta = result.get("_meta")
        kept: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
        note = f"arguments: {told['arguments']}, result: {told['result']}"
        return Continue({**result, "_meta": {**kept, META_KEY: told}}, note)


def _shown(result: Result) -> object:
    """What a model is given of it, whatever the method."""
    return next((result[key] for key in ("content", "contents", "messages") if key in result), None)


def _tokens(*values: object) -> list[int]:
    return [_estimate(value) for value in values]


def _estimate(value: object) -> int:
    try:
        return estimate_tokens(len(json.dumps(value, ensure_ascii=False)))
    except (TypeError, ValueError, RecursionError):
        return 0
