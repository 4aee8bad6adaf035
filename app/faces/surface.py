"""The one Protocol that every face implements and every door uses: a list of tools and a way to call one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.gateway.meter import TokenCost
from app.gateway.ports import CallContext


@dataclass(frozen=True, slots=True)
class SurfaceTool:
    """A tool as a model or an MCP client sees it. *input_schema* is JSON Schema of type object; *hints* are annotations
    as MCP names them, beside ``readOnlyHint``."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool = False
    output_schema: Mapping[str, Any] | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None


@dataclass(frozen=True, slots=True)
class SurfaceResult:
    """Content blocks in MCP wire JSON, and the structured form, which is always an object (DESIGN §3).

    *text* is the structured form as compact JSON: what the engine shows its model. *as_it_came*: a tool server's own
    result, for faces that show results as they are; MCP clients get this, whatever the rest says.
    """

    content: Sequence[Mapping[str, Any]]
    structured: Mapping[str, Any]
    text: str
    is_error: bool
    cost: TokenCost = field(default_factory=TokenCost)
    as_it_came: Mapping[str, Any] | None = None


class UnknownTool(LookupError):
    """The surface has no tool of that name; each door says so in its own protocol's words."""


class Refusal(Exception):
    """An answer that a door gives as an error of its protocol, for a face that speaks in JSON-RPC errors (S2 "Error
    Handling"). All of it is shown to the client."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ToolSurface(Protocol):
    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        """What the caller may see; the same object as long as nothing has changed for it."""
        ...

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        """Run a tool. *arguments* is whatever came in; failures are results.

        Raises UnknownTool; Refusal, in a face that speaks in JSON-RPC errors; and InputRequired, when the tool server
        asks something and the caller can answer later.
        """
        ...
