"""The three tools for a model loop of one's own: their definitions as a provider takes them, and a call as its model
makes it (LIB-25)."""

from collections.abc import Mapping
from typing import Any, Literal

from wicketgate.errors import ArgsInvalid
from wicketgate.faces.gateway import TOOLS, GatewayFace
from wicketgate.faces.meta_tool import failure
from wicketgate.faces.surface import SurfaceResult, ToolSurface, UnknownTool
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.models.anthropic.request import written_tools as for_anthropic
from wicketgate.models.openai.request import written_tools as for_openai
from wicketgate.models.provider import ModelTool
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.models.turn_reading import encodable
from wicketgate.ports import CallContext

Provider = Literal["openai", "anthropic"]


def tool_definitions(provider: Provider) -> list[dict[str, Any]]:
    """Raises ValueError for another *provider*."""
    written = {"openai": for_openai, "anthropic": for_anthropic}.get(provider)
    if written is None:
        raise ValueError(f"provider must be 'openai' or 'anthropic', not {provider!r}")
    return written([ModelTool(tool.name, tool.description, tool.input_schema) for tool in TOOLS])


def face_of(runtime: ProxyRuntime) -> ToolSurface:
    """The face of a runtime without a gate, which would have made one."""
    return GatewayFace(runtime)


async def call_tool(face: ToolSurface, name: str, args: Mapping[str, Any] | str, context: CallContext) -> str:
    """Returns the text for the model, which explains a failure too. It can be sent on: UTF-8 can encode it."""
    return encodable((await _result(face, str(name), args, context)).shown)


async def _result(face: ToolSurface, name: str, args: Mapping[str, Any] | str, context: CallContext) -> SurfaceResult:
    arguments = parse_arguments(args, cut=False) if isinstance(args, str) else args
    if arguments is None:
        return failure(ArgsInvalid("The arguments of a tool call must be one JSON object."))
    try:
        return await face.call(name, arguments, context)
    except UnknownTool:
        known = ", ".join(tool.name for tool in face.tools(context))
        return failure(ArgsInvalid(f"There is no tool {name}. The tools are {known}."))
