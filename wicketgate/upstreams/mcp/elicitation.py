"""Questions of a tool server to the person behind a call (elicitation): who is asked, and what if no one can be.

A server of the handshake era asks while the call runs; one of 2026-07-28 answers ``input_required`` and is called again
with the answers (gatekit G47). Only ``elicitation/create`` is passed on: sampling and roots are not declared.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from wicketgate.errors import InputRequired, UpstreamError
from wicketgate.ports import CallContext, CannotAsk, InputAnswers
from wicketgate.upstreams.mcp.call import Call
from wicketgate.upstreams.mcp.failures import NOT_VALID, Malformed
from wicketgate.upstreams.mcp.session import ELICIT

log = logging.getLogger("wicketgate.upstream")

_DECLINED = {"action": "decline"}
_MAX_ROUNDS = 8
_MAX_REQUESTS = 32
_PAUSE_S = 0.05

Attempt = Callable[[InputAnswers | None], Awaitable[dict[str, Any]]]


async def answer_to(name: str, params: object, call: Call | None) -> Mapping[str, Any]:
    """The result for ``elicitation/create`` of a handshake-era server: the client's answer, or that it is declined."""
    if call is None:
        why = "it is not known whose call it belongs to"
    elif call.caller.answers != "now":
        why = "the client of the call cannot be asked while it runs"
    elif not isinstance(params, Mapping):
        why = "it is not well-formed"
    else:
        try:
            return await call.caller.ask(ELICIT, params)
        except CannotAsk:
            why = "the client of the call cannot answer it"
    log.warning("%s: a question of the server was declined: %s", name, why)
    return _DECLINED


async def with_answers(name: str, attempt: Attempt, context: CallContext) -> dict[str, Any]:
    """Call until the server needs no more answers. Raises InputRequired where the answers come with another call of the
    client, Malformed for a result of an unknown kind, and UpstreamError where no one can be asked, or there is no end
    to it."""
    answers = context.answers
    for _ in range(_MAX_ROUNDS):
        result = await attempt(answers)
        match result.get("resultType"):
            case None | "complete":
                return result
            case "input_required":
                answers = await _answered(name, result, context)
            case _:
                # Such as the task of an extension, which is not offered: the call may not be over.
                raise Malformed(NOT_VALID)
    raise UpstreamError(f"{name} asked for input again and again; the call was given up.")


async def _answered(name: str, result: Mapping[str, Any], context: CallContext) -> InputAnswers:
    requests, state = result.get("inputRequests") or {}, result.get("requestState")
    if not isinstance(requests, dict) or not isinstance(state, str | None) or len(requests) > _MAX_REQUESTS:
        raise Malformed(NOT_VALID)
    if not requests:
        # It only wants to be asked again, with its state.
        if state is None:
            raise Malformed(NOT_VALID)
        await asyncio.sleep(_PAUSE_S)
        return InputAnswers({}, state)
    for request in requests.values():
        match request:
            case {"method": "elicitation/create", "params": dict()}:
                pass
            case {"method": str()}:
                raise UpstreamError(
                    f"{name} asks for something other than input (sampling or roots), which is not offered to it."
                )
            case _:
                raise Malformed(NOT_VALID)
    match context.caller.answers:
        case "later":
            raise InputRequired(requests, state)
        case "now":
            try:
                return InputAnswers(
                    {key: await context.caller.ask(ELICIT, request["params"]) for key, request in requests.items()},
                    state,
                )
            except CannotAsk:
                pass
    raise UpstreamError(f"{name} needs an answer from a person before it can run this tool; this client cannot ask.")
