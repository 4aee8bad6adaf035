"""The body of ``POST /engine/chat``: the accepted fields, the texts of refusals, and the context of its calls
(BROWSE-10 to BROWSE-18, CHAT-2 to CHAT-17, CHAT-101 to CHAT-103)."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from wicketgate.access.identity import Identity
from wicketgate.log_text import CORRELATION_ID
from wicketgate.ports import NO_META, CallContext, session_key

Trigger = Literal["message", "webhook", "schedule"]
OnDisconnect = Literal["cancel", "continue"]
"""The fate of a run that has lost its reader."""

MAX_MESSAGES = 10_000
MAX_APPROVALS = 100
MAX_NAME_CHARS = 256
MAX_CALL_ID_CHARS = 8_192
"""Some proxies write the model's signed thoughts into the ids of its calls, and read them back from there."""


_MAX_KIND_CHARS = 64


class InvalidRequest(ValueError):
    """The body breaks the contract. The text is safe for the client: field names and our own words."""


class _Contract(BaseModel):
    # Unknown fields are ignored, not refused: the contract forbids `tools` or `model` here to have any effect,
    # and a gateway may be newer than this engine.
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class FunctionCall(_Contract):
    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    arguments: str = Field(description="A JSON object, as text.")


class MessageToolCall(_Contract):
    id: str = Field(min_length=1, max_length=MAX_CALL_ID_CHARS)
    type: Literal["function"] = "function"
    function: FunctionCall


class TextPart(_Contract):
    """A piece of a message's text. Parts of other types are refused."""

    type: Literal["text"]
    text: str


def _text_of(content: object) -> object:
    """The text that *content* holds, parts joined by line breaks."""
    if isinstance(content, list) and content:
        return "\n".join(_part_text(number, part) for number, part in enumerate(content))
    if isinstance(content, str):
        return content
    raise PydanticCustomError(
        "content",
        "a text is required, or a list of text parts; only an assistant message with tool_calls may have none",
    )


def _part_text(number: int, part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)} if kind != "text":
            named = {"number": number, "kind": kind[:_MAX_KIND_CHARS]}
            raise PydanticCustomError(
                "part", "part {number} is of type '{kind}'; only parts of type 'text' are supported", named
            )
        case _:
            raise PydanticCustomError("part", "part {number} is no text part", {"number": number})


def _as_text_part(part: object) -> object:
    """A refusal among the parts as the text that it is; any other part as it came."""
    match part:
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case _:
            return part


Role = Literal["system", "user", "assistant", "tool"]
WrittenRole = Literal["system", "developer", "user", "assistant", "tool"]


def _role_of(role: object) -> object:
    if role not in get_args(WrittenRole):
        raise PydanticCustomError("role", "Input should be 'system', 'developer', 'user', 'assistant' or 'tool'")
    return "system" if role == "developer" else role


_ANSWERS_A_CALL: JsonDict = {
    "if": {"properties": {"role": {"const": "tool"}}, "required": ["role"]},
    "then": {
        "properties": {"tool_call_id": {"type": "string", "minLength": 1}},
        "required": ["tool_call_id"],
    },
}


class ChatMessage(_Contract):
    """One message of the conversation, as SDKs of the prevailing chat format write it. Other keys have no effect."""

    # Said in the schema alone (CHAT-107): parse_chat_request refuses it in words of its own.
    model_config = ConfigDict(json_schema_extra=_ANSWERS_A_CALL)

    role: Annotated[Role, BeforeValidator(_role_of, json_schema_input_type=WrittenRole)] = Field(
        description="developer is read as system."
    )
    content: Annotated[str, BeforeValidator(_text_of, json_schema_input_type=str | list[TextPart] | None)] = Field(
        default=None, validate_default=True, description="Null or absent only beside an assistant's tool_calls."
    )
    tool_calls: list[MessageToolCall] | None = Field(default=None, description="Assistant messages only.")
    tool_call_id: str | None = Field(default=None, description="Tool messages only: the call that is answered.")

    @model_validator(mode="before")
    @classmethod
    def _as_sdks_write_it(cls, message: object) -> object:
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return message
        # No calls are written as an empty list by some, which providers refuse.
        calls = None if message.get("tool_calls") == [] else message.get("tool_calls")
        message = {**message, "tool_calls": calls}
        content = message.get("content")
        if content is None:
            refusal = message.get("refusal")
            message["content"] = refusal if isinstance(refusal, str) else "" if calls is not None else None
        elif isinstance(content, list):
            message["content"] = [_as_text_part(part) for part in content]
        return message


class ApprovalDecision(_Contract):
    """The owner's decision about a call that waits for it."""

    id: str = Field(min_length=1, max_length=2_000, description="As in the tool-result: approval_required <id>.")
    decision: Literal["approve", "deny"]


class ChatMetadata(_Contract):
    """Pass-through context."""

    correlation_id: Annotated[str, Field(pattern=f"^{CORRELATION_ID.pattern}$")] = Field(
        description="Trace id of the request, made by the gateway. Returned as X-Correlation-ID."
    )
    conversation_id: str | None = Field(default=None, min_length=1, max_length=256)
    trigger: Trigger = Field(default="message", description="What began the run; message if absent.")
    client_context: dict[str, Any] | None = None
    approvals: list[ApprovalDecision] | None = Field(
        default=None, max_length=MAX_APPROVALS, description="Decisions on calls that an earlier stream left waiting."
    )


class ChatRequest(_Contract):
    """A conversation to be continued."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    metadata: ChatMetadata


def parse_chat_request(body: bytes | Mapping[str, Any]) -> ChatRequest:
    """Parse JSON, or a mapping that stands for it. Raises InvalidRequest that names the first field at fault."""
    if isinstance(body, Mapping):
        body = json.dumps(dict(body)).encode()  # one parser for both, so that both are refused with the same texts
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise InvalidRequest(_explain(error)) from None
    _check_tool_pairs(request.messages)
    ids = [decision.id for decision in request.metadata.approvals or ()]
    if len(set(ids)) < len(ids):
        raise InvalidRequest("metadata.approvals has two decisions for one id")
    return request


def message_json(message: ChatMessage) -> Mapping[str, Any]:
    """The message for a provider, without absent keys."""
    if message.tool_calls is None and message.tool_call_id is None:  # nearly all of them
        return {"role": message.role, "content": message.content}
    return message.model_dump(exclude_none=True)


def call_context(
    request: ChatRequest, identity: Identity, source: str = "", meta: Mapping[str, Any] = NO_META
) -> CallContext:
    """The identity, address, trace (that of *meta* included) and browsing session for the calls of *request*.

    The session is that of the conversation; without one, of this run alone.
    """
    metadata = request.metadata
    scope = "run" if metadata.conversation_id is None else "conversation"
    session = session_key(scope, identity.actor, metadata.conversation_id or metadata.correlation_id)
    return CallContext(
        identity,
        metadata.correlation_id,
        session,
        source=source,
        door="chat",
        meta=meta,
        named=metadata.conversation_id is not None,
        said=[message.content for message in request.messages if message.role == "user"],
    )


def _explain(error: ValidationError) -> str:
    # One fault is enough for a client to act on. Its input is not repeated.
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    match first["type"], where:
        case "json_invalid", _:
            return "Request body is not valid JSON"
        case _, "":
            return "Request body must be a JSON object"
        case _, "messages":
            return "Request body must include a messages array with at least one message"
        case "missing", "metadata" | "metadata.correlation_id":
            return "Request body must include metadata.correlation_id"
        case "string_pattern_mismatch", "metadata.correlation_id":
            return f"metadata.correlation_id must match {CORRELATION_ID.pattern}"
        case "missing", _:
            return f"{where} is required"
        case _:
            return f"{where}: {first['msg']}"


def _check_tool_pairs(messages: Sequence[ChatMessage]) -> None:
    """Check that every call is answered and every answer has a call.

    No provider accepts less, and each refuses it differently.
    """
    # The calls of the last assistant message that are not answered yet, with its index.
    open_calls: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id is None:
                raise InvalidRequest(f"messages.{index}.tool_call_id is required when role is tool")
            if open_calls.pop(message.tool_call_id, None) is None:
                raise InvalidRequest(f"messages.{index}.tool_call_id answers no tool call before it")
            continue
        _refuse_open_calls(open_calls)
        if message.tool_calls and message.role != "assistant":
            raise InvalidRequest(f"messages.{index}.tool_calls is allowed only when role is assistant")
        open_calls = {call.id: index for call in message.tool_calls or ()}
    _refuse_open_calls(open_calls)


def _refuse_open_calls(open_calls: Mapping[str, int]) -> None:
    for index in open_calls.values():
        raise InvalidRequest(f"messages.{index}.tool_calls has a call without a tool message that answers it")
