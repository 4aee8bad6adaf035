"""What a door needs of a face: a list of tools and a way to call one, which every face has; and what some have besides
(S2 "Broadcast Methods")."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wicketgate.fleet.features import FeatureChange, FeatureKind
from wicketgate.gateway.options import TokenCost
from wicketgate.ports import CallContext


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


@dataclass(frozen=True, slots=True)
class Listed:
    """Items in MCP wire JSON, each once; *missing* says by server why its own are not among them."""

    items: Sequence[Mapping[str, Any]]
    missing: Mapping[str, str]


Offer = Literal["resources", "prompts", "completions"]


class Offers(Protocol):
    """What a face has besides tools, in MCP wire JSON. Whatever cannot be given raises Refusal; a server that asks
    something, InputRequired."""

    def missing(self, context: CallContext) -> Mapping[str, str]:
        """By server, why not all of its tools are listed."""
        ...

    def offered(self, offer: Offer) -> bool:
        """Whether any server has it, or may have it once it is connected."""
        ...

    def instructions(self, context: CallContext) -> str:
        """What the servers say of themselves."""
        ...

    async def list_all(self, kind: FeatureKind, context: CallContext) -> Listed: ...

    async def read_resource(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]: ...

    async def get_prompt(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]: ...

    async def complete(self, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]: ...

    async def subscribe(self, uri: str, context: CallContext) -> Callable[[], None]:
        """Hear of changes of a resource until what is returned was called, once."""
        ...

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        """Call *heard* on each change, with URIs as they are here."""
        ...
