"""Publishes the contract as documents, because generators and validators read streams differently (LIB-40).

- ``openapi.json`` (3.1): the stream's schema is ``ChatEventData``, the item that generated clients yield. ``ChatEvent``
  types the whole event, with its name and id.
- ``openapi-no-stream.json``: the same without the chat, for generators that cannot stream. The schemas stay.
- ``openapi-3.2.json``: ``itemSchema`` with ``data`` as the JSON text on the wire, for validators.
- ``console.json`` (3.1): the paths, parameters and bodies of the console, which change with its pages. It says in words
  what an answer holds: nothing but the pages of the same version reads it.
"""

import copy
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema

from routers.engine import BUDGET, CHOICES, KEY, LAST_EVENT_ID, ON_DISCONNECT
from routers.engine import PATH as CHAT_PATH
from routers.json_bodies import TEXT
from wicketgate.engine.contract import ChatRequest
from wicketgate.log_text import CORRELATION_ID, HEADER

_REF = "#/components/schemas/{model}"


def openapi_31(app: FastAPI) -> dict[str, Any]:
    document = _document(
        app,
        _TAGS,
        "Wicketgate",
        "A gate in front of MCP tool servers.",
        "The model's only tools are tool_browse, tool_execute and tool_view. `/mcp` is not described "
        "here: it speaks the Model Context Protocol.",
    )
    request = ChatRequest.model_json_schema(ref_template=_REF, schema_generator=_WithoutDefaults)
    schemas = document["components"]["schemas"]
    schemas.update(request.pop("$defs"))
    schemas["ChatRequest"] = request
    schemas["Refusal"] = _object(code=_text(), message=_text())
    schemas.update(_EVENT_DATA)
    schemas["ChatEventData"] = {
        "description": "The data of one event. The keys of each are different.",
        "oneOf": [_ref(name) for name in _EVENT_DATA if name != "ToolResultData"],
    }
    schemas["ChatEvent"] = {
        "description": "One event of the stream.",
        "oneOf": [_ref(_event_name(event)) for event in _EVENTS],
        "discriminator": {
            "propertyName": "event",
            "mapping": {event: _REF.format(model=_event_name(event)) for event in _EVENTS},
        },
    }
    for event, data in _EVENTS.items():
        schemas[_event_name(event)] = _event(event, _ref(data))
    document["paths"]["/healthz"]["get"]["security"] = []
    document["paths"]["/readyz"]["get"]["security"] = [{}, {"bearer": []}]
    document["paths"] = {CHAT_PATH: {"post": _CHAT}, **document["paths"]}
    return document


def _without_stream(app: FastAPI) -> dict[str, Any]:
    document = openapi_31(app)
    del document["paths"][CHAT_PATH]
    document["tags"] = [tag for tag in _TAGS if tag["name"] != "chat"]
    return document


def _openapi_32(app: FastAPI) -> dict[str, Any]:
    document = copy.deepcopy(openapi_31(app))
    document["openapi"] = "3.2.0"
    schemas = document["components"]["schemas"]
    for event, data in _EVENTS.items():
        data_text = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(data)}
        schemas[_event_name(event)] = _event(event, data_text)
    stream = document["paths"][CHAT_PATH]["post"]["responses"]["200"]["content"]
    stream["text/event-stream"] = {"itemSchema": _ref("ChatEvent")}
    return document


def _console(app: FastAPI) -> dict[str, Any]:
    return _document(
        app,
        [{"name": "console", "description": "The data of the web console at `/console/`."}],
        "Wicketgate console",
        "The data of the web console.",
        "For the pages of the same version. Programs use the public document.",
    )


DOCUMENTS: Mapping[str, Callable[[FastAPI], dict[str, Any]]] = {
    "openapi.json": openapi_31,
    "openapi-no-stream.json": _without_stream,
    "openapi-3.2.json": _openapi_32,
    "console.json": _console,
}
"""By the name of the file below ``openapi/``."""


def publish_openapi(app: FastAPI, console: bool) -> None:
    """Serves the documents. Each is built once, at its first request."""
    paths = {"/openapi.json": openapi_31, "/openapi-3.2.json": _openapi_32}
    if console:
        paths["/console/api/openapi.json"] = _console
    for path, build in paths.items():
        app.add_api_route(path, cache(partial(build, app)), include_in_schema=False)


def _document(app: FastAPI, tags: list[dict[str, str]], title: str, summary: str, description: str) -> dict[str, Any]:
    """Returns the document of the operations with one of *tags*."""
    names = {tag["name"] for tag in tags}
    document = get_openapi(
        title=title,
        summary=summary,
        description=description,
        version=app.version,
        openapi_version="3.1.0",
        routes=[route for route in app.routes if isinstance(route, APIRoute) and names.intersection(route.tags)],
        # Relative, because the service does not know the address that a client reaches it by.
        servers=[{"url": "/"}],
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        tags=list[dict[str, Any]](tags),
    )
    document.setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"bearer": []}]
    return document


class _WithoutDefaults(GenerateJsonSchema):
    """Leaves defaults out: some generators require every property that has one."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def _ref(model: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model)}


def _text(description: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} if description else {"type": "string"}


def _object(**properties: Any) -> dict[str, Any]:
    """Returns the schema of an object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _event(event: str, data: dict[str, Any]) -> dict[str, Any]:
    schema = _object(event={"type": "string", "const": event}, data=data)
    schema["properties"]["id"] = _text("Only in streams of a request with an Idempotency-Key.")
    return schema


def _event_name(event: str) -> str:
    return "".join(word.capitalize() for word in event.split("-")) + "Event"


def _header(name: str, schema: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": dict(schema), "description": description}


def _refusal(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref("Refusal")}}}


_TAGS = [
    {"name": "chat", "description": "Conversations, with the tools run by the service."},
    {"name": "operations", "description": "Tools found, described and run by the caller."},
    {"name": "approvals", "description": "Calls that wait for a decision, and the decisions."},
    {"name": "spending", "description": "What was used, and what it cost."},
    {"name": "connections", "description": "Accounts that callers have connected at tool servers."},
    {"name": "health", "description": "Whether the process lives, and whether it can serve."},
]

_EVENTS = {
    "text-delta": "TextDeltaData",
    "tool-call": "ToolCallData",
    "tool-result": "ToolResultData",
    "done": "DoneData",
    "error": "ErrorData",
}

_TOKENS = {"type": "integer", "minimum": 0}

_EVENT_DATA: dict[str, Any] = {
    "TextDeltaData": _object(content=_text()),
    "ToolCallData": _object(id=_text(), name=_text(), arguments={"type": "object", "additionalProperties": True}),
    # By name, and flat in ChatEventData: some generators lose what is anonymous, or one union inside another.
    "ToolOutputData": _object(id=_text(), output=_text("JSON text of the tool's result.")),
    "ToolErrorData": _object(id=_text(), error=_text("Went back to the model, which decides what to do.")),
    "ToolResultData": {
        "description": "Paired with its tool-call by id; exactly one of output and error.",
        "oneOf": [_ref("ToolOutputData"), _ref("ToolErrorData")],
    },
    "DoneData": _object(
        finish_reason=_text(
            "Open set: stop, length, content_filter, max_iterations, approval_required, connect_required, cancelled."
        ),
        usage={
            "type": "object",
            "properties": {
                "prompt_tokens": _TOKENS,
                "completion_tokens": _TOKENS,
                "tool_tokens": {
                    **_TOKENS,
                    "description": "If tools ran, estimated: what they gave the model.",
                },
                "naive_tool_tokens": {
                    **_TOKENS,
                    "description": "Likewise: what all tool definitions and raw results would have taken.",
                },
                "cost": {
                    "type": "number",
                    "minimum": 0,
                    "description": "If prices are configured, in their currency: of model and tools.",
                },
            },
            "required": ["prompt_tokens", "completion_tokens"],
        },
    ),
    "ErrorData": _object(
        code={"type": "string", "enum": ["provider_error", "tool_error", "context_overflow"]},
        message=_text("A fixed text for each code."),
    ),
}

_ID = {"type": "string", "pattern": f"^{CORRELATION_ID.pattern}$"}
_CHAT: dict[str, Any] = {
    "operationId": "engineChat",
    "tags": ["chat"],
    "summary": "Run the agent loop over a conversation and stream what happens.",
    "description": "Always a stream. It ends with exactly one `done` or `error`. Comment lines (`: keepalive`) keep "
    "idle connections open. `id` lines come only with an "
    "Idempotency-Key. Tools, model and credentials are the deployment's: unknown fields of the body have no "
    "effect.",
    "x-fern-streaming": {"format": "sse"},
    "parameters": [
        _header(HEADER, _ID, "If given, it must equal metadata.correlation_id."),
        _header(KEY, _ID, "One run for one key. The same request again reads the same run; its events have ids."),
        _header(LAST_EVENT_ID, TEXT, f"With {KEY}: go on behind this event of the run."),
        _header(
            ON_DISCONNECT,
            {"type": "string", "enum": list(CHOICES)},
            f"With {KEY}: what becomes of the run when nobody reads it.",
        ),
    ],
    "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("ChatRequest")}}},
    "responses": {
        "200": {
            "description": "The stream.",
            "headers": {
                HEADER: {"schema": {"type": "string"}, "description": "metadata.correlation_id"},
                BUDGET: {"schema": {"type": "string"}, "description": "Budgets of which 80 % is spent."},
            },
            "content": {"text/event-stream": {"schema": _ref("ChatEventData")}},
        },
        "400": _refusal("The body breaks the contract; nothing was started."),
        "401": _refusal("No credential, or one that is not valid."),
        "413": _refusal("The body is larger than the deployment allows."),
        "429": _refusal(
            "The actor has as many streams open as it may have, or a budget of it is used up; Retry-After."
        ),
        "503": _refusal("Starting, draining, or at the limit of concurrent streams; try again."),
    },
}
