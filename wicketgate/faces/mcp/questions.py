"""Questions to a client and its answers, as the SDK's types know them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import mcp_types as t
from mcp_types.methods import validate_client_result
from pydantic import BaseModel, ValidationError

from wicketgate.errors import InputRequired, UpstreamError
from wicketgate.faces.mcp.caller import HeldAnswers, can_answer
from wicketgate.faces.mcp.request import RpcError
from wicketgate.mcp_names import INVALID_PARAMS
from wicketgate.ports import InputAnswers

Question = t.ElicitRequest | t.CreateMessageRequest | t.ListRootsRequest

_QUESTIONS: dict[str, tuple[type[Question], type[t.Result]]] = {
    "elicitation/create": (t.ElicitRequest, t.ElicitResult),
    "sampling/createMessage": (t.CreateMessageRequest, t.CreateMessageResultWithTools),
    "roots/list": (t.ListRootsRequest, t.ListRootsResult),
}
# The sealed text is one of these, because a tool server may ask without a state of its own, then the digest of the
# tool's definition, a colon, and the server's state. A call that is held here has its id instead of all that, and one
# that waits for its owner's approval the sealed id of the approval.
_STATE, _NO_STATE, _HELD, _APPROVAL = "t", "n", "h", "a"


def read_question(method: str, params: Mapping[str, Any]) -> tuple[Question, type[t.Result]]:
    """Returns a question and the type of its answer. Raises ValidationError."""
    question, answer = _QUESTIONS[method]
    return question.model_validate({"method": method, "params": params}, by_name=False), answer


def answer_of(method: str, response: object) -> Mapping[str, Any] | None:
    """A client's answer to *method* as wire JSON; None if it is not valid MCP."""
    try:
        return read_answer(method, response)
    except ValidationError:
        return None


def read_answer(method: str, response: object, version: str = "") -> Mapping[str, Any]:
    """A client's answer as wire JSON, valid in *version* too if that is given. Raises ValidationError."""
    if version and isinstance(response, Mapping):
        with suppress(KeyError):  # a version that does not know the method
            validate_client_result(method, version, response)
    return wire(_QUESTIONS[method][1].model_validate(response, by_name=False), "result_type")


def wire(value: BaseModel, *left_out: str) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True, exclude=set(left_out))


def ask_later(can: Mapping[str, Any], question: InputRequired) -> dict[str, Any]:
    """The answer that makes a client with the capabilities *can* ask its user.

    Raises UpstreamError if this client cannot, or if the question is not valid MCP.
    """
    kind = _NO_STATE if question.request_state is None else _STATE
    state = f"{kind}{question.definition}:{question.request_state or ''}"
    if question.approval:
        state = f"{_APPROVAL}:{question.approval}"
    try:
        result = t.InputRequiredResult.model_validate(
            {"inputRequests": dict(question.requests), "requestState": state}, by_name=False
        )
    except ValidationError:
        raise UpstreamError("The tool asks for input in a way that is not valid MCP.") from None
    for request in (result.input_requests or {}).values():
        params = request.params.model_dump(by_alias=True, exclude_none=True) if request.params else {}
        if not can_answer(can, request.method, params):
            raise UpstreamError(f"The tool needs an answer to {request.method}, which this client cannot give.")
    return wire(result)


def ask_held(id: str, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The answer that makes the client ask its user, while the call *id* is held."""
    questions = {"inputRequests": dict(requests), "requestState": f"{_HELD}:{id}"}
    return wire(t.InputRequiredResult.model_validate(questions, by_name=False))


def read_answers(params: Mapping[str, Any]) -> InputAnswers | HeldAnswers | None:
    """The answers of a second attempt, whose state is open by now (``sdk_caller``); None for a first attempt.

    Answers without the state that came with their questions belong to nothing here. They are passed over, and the call
    is a new one, as any client may make it (FACE-100): the server gets no answer and asks again. A call that is held
    for the questions is left as it is.

    Raises RpcError for a state that was written by another version.
    """
    responses, state = params.get("inputResponses"), params.get("requestState")
    if state is None:
        return None
    head, _, own = state.partition(":")
    if head == _HELD:
        return HeldAnswers(own, dict(responses or {}))
    if head == _APPROVAL:
        return InputAnswers(dict(responses or {}), None, approval=own)
    if not head.startswith((_STATE, _NO_STATE)):
        raise RpcError(INVALID_PARAMS, "This requestState is no longer valid. Make the call again without it.")
    return InputAnswers(dict(responses or {}), own if head.startswith(_STATE) else None, head[1:])
