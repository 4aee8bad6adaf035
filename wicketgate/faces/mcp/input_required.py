"""Questions of a tool server to a client that answers with a second attempt (2026-07-28, ``input_required``).

Between the attempts nothing is kept here. The tool server's own state travels with the client, sealed and bound to
actor, tool, arguments, face and an expiry, so that it opens only for the very call that it was given for.
"""

from collections.abc import Callable
from typing import Any

from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import InvalidRequestState, RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.errors import InputRequired, UpstreamError
from wicketgate.faces.mcp.caller import can_answer
from wicketgate.ports import InputAnswers

Ctx = ServerRequestContext[Any, Any]

ANSWERS_WITHIN_S = 600.0

_STATE, _NO_STATE = "s", "-"
"""What is sealed begins with one of these: a tool server may ask without a state of its own."""


_PURPOSE = "request state"


class _Codec:
    """Seals for the SDK, whose claims (actor, tool, arguments, face) are a part of what is sealed."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def seal(self, payload: bytes) -> str:
        return self._seal.seal(_PURPOSE, "", payload.decode(), ANSWERS_WITHIN_S)

    def unseal(self, token: str) -> bytes:
        sealed = self._seal.open(_PURPOSE, "", token)
        if sealed is None or self._seal.expired(sealed):
            raise InvalidRequestState("not sealed here, or expired")
        return sealed.text.encode()


def seal_states(seal: Seal, audience: str, who: Callable[[Ctx], Identity]) -> RequestStateBoundary:
    """Middleware that seals every state which goes out and opens what comes back, or refuses the call (-32602)."""
    security = RequestStateSecurity(
        codec=_Codec(seal), ttl=ANSWERS_WITHIN_S, bind_principal=lambda ctx: who(ctx).actor, audience=audience
    )
    return RequestStateBoundary(security, default_audience=audience)


def asks(ctx: Ctx, question: InputRequired) -> t.InputRequiredResult:
    """The answer that makes the client ask its user. Raises UpstreamError where this client cannot, or the tool server
    asks in no known way."""
    state = _NO_STATE if question.request_state is None else _STATE + question.request_state
    try:
        result = t.InputRequiredResult.model_validate(
            {"inputRequests": dict(question.requests), "requestState": state}, by_name=False
        )
    except ValidationError:
        raise UpstreamError("The tool asks for input in a way that is not valid MCP.") from None
    for request in (result.input_requests or {}).values():
        params = request.params.model_dump(by_alias=True, exclude_none=True) if request.params else {}
        if not can_answer(ctx, request.method, params):
            raise UpstreamError(f"The tool needs an answer to {request.method}, which this client cannot give.")
    return result


def answers(ctx: Ctx) -> InputAnswers | None:
    """What the client brings with a second attempt; None for a first one. Its state is open by now (``seal_states``).

    Raises MCPError for answers to a question that was never asked.
    """
    params = ctx.params or {}
    responses, state = params.get("inputResponses"), params.get("requestState")
    if responses is None and state is None:
        return None
    if not isinstance(state, str):
        raise MCPError(t.INVALID_PARAMS, "inputResponses need the requestState that came with the questions.")
    return InputAnswers(dict(responses or {}), state[1:] if state.startswith(_STATE) else None)
