"""The surface that every face offers to the doors: a list of tools and a way to call one. Some have more to offer
(ROUTE-11)."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from wicketgate.gateway.options import TokenCost
from wicketgate.ports import CallContext

_NO_COST = TokenCost()

MAX_ALWAYS = 20
"""Tools of ``mcp.always`` that are listed next to the three. A model reads all of their schemas in every turn."""


@dataclass(frozen=True, slots=True)
class SurfaceTool:
    """A tool as a model or an MCP client sees it. *input_schema* is JSON Schema of type object; *hints* are annotations
    as MCP names them, and *more* are other fields of a definition, such as ``icons``."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool = False
    output_schema: Mapping[str, Any] | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


ResultForm = Literal["text", "json", "both"]
"""The form of a meta-tool's result for MCP clients: the text that a model reads, JSON for programs, or both. Some
clients show their model only the JSON if there is any (FACE-176)."""


class SurfaceResult(msgspec.Struct, frozen=True):
    """Content blocks in MCP wire JSON, and the structured form, which is always an object (FACE-27).

    *text* is the structured form as compact JSON, *shown* the text for the engine's model: the same, unless there is a
    shorter form. *as_it_came* is a tool server's own result in faces that show results unchanged; MCP clients get this
    instead of everything above. *out_of_order*: it failed for a reason that fails every other call too (OutOfOrder).
    *connects*: nothing ran, because its caller has to connect an account first.
    *meta* is a server's ``_meta``, for the client and no model.
    *refused* is the server's error that this failure comes from, if it is for the client and not for a model (FACE-57).
    """

    content: Sequence[Mapping[str, Any]]
    structured: Mapping[str, Any]
    text: str
    is_error: bool
    cost: TokenCost = _NO_COST
    as_it_came: Mapping[str, Any] | None = None
    shown: str = ""
    out_of_order: bool = False
    connects: bool = False
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)
    refused: "Refusal | None" = None

    def __post_init__(self) -> None:
        if self.text and not self.shown:
            msgspec.structs.force_setattr(self, "shown", self.text)

    @classmethod
    def unchanged(cls, result: Mapping[str, Any]) -> "SurfaceResult":
        return cls((), {}, "", bool(result.get("isError")), as_it_came=result)


class UnknownTool(LookupError):
    """The surface has no tool of that name. Each door answers with the error of its own protocol."""


class Refusal(Exception):
    """A JSON-RPC error that a face gives as its answer (ROUTE-13). The client sees all of it. *theirs*: the code and
    the data are a tool server's, not ours."""

    def __init__(self, code: int, message: str, data: object = None, *, theirs: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.theirs = theirs


class ToolSurface(Protocol):
    def prepare(self, context: CallContext) -> Awaitable[None]:
        """Work out beside the event loop what takes long for this caller before a large catalog. Await it first, and
        neither ``tools`` nor ``call`` holds the loop for it (BROWSE-59)."""
        ...

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        """The tools that the caller may see; the same object until something has changed for it."""
        ...

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        """Run a tool with unchecked *arguments*. Failures are results.

        Raises UnknownTool; Refusal, in a face that answers with JSON-RPC errors; InputRequired, if the tool server
        has a question that the caller can answer later.
        """
        ...


@runtime_checkable
class Introduced(Protocol):
    """A surface that says, for the instructions of a client, what stands behind it (FACE-16)."""

    def introduction(self, context: CallContext) -> str: ...


class ModelSurface(ToolSurface, Protocol):
    """A face behind which a model stands: the engine's."""

    def may_write(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> bool:
        """True unless it is known that this call changes nothing (CHAT-98)."""
        ...

    def shown_again(self, name: str, text: str) -> str:
        """The form in which the model was shown a result of the tool *name* whose *text* a client has sent back: what
        it was, byte for byte, so that prompt caches hit (CHAT-97)."""
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """Items in MCP wire JSON, each once. *missing* gives by server the reason that its items are left out, *fresh_ms*
    how long the list is good for (FACE-62)."""

    items: Sequence[Mapping[str, Any]]
    missing: Mapping[str, str]
    fresh_ms: int = 0


Offer = Literal["resources", "prompts", "completions", "skills", "directories"]
