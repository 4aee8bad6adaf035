"""Plugins that rewrite what passes: names of tools, and notes in results (ROUTE-23).

``ToolManager`` works on the definitions at each refresh, so browsing, listing and calling agree: a hidden tool is not
in the catalog, and a renamed one is there under its new name only. ``CallTrace`` and ``TokenUsage`` note facts about a
call in its result: a trace, and the cost in tokens (ROUTE-30).
"""

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, field_validator

from wicketgate.plugin_api import CONTINUE, UPSTREAM_NAME_KEY, Continue, MiddlewarePlugin, PluginConfig, Request, Result
from wicketgate.results.bulk import count_json_chars, json_bytes
from wicketgate.results.firewall import is_bulky
from wicketgate.tokens import estimate_tokens


class ToolEntry(PluginConfig):
    """*tool* is the server's own name. With ``*`` it can name several tools, which cannot be renamed."""

    tool: str = Field(min_length=1, max_length=512)
    display_name: str | None = Field(default=None, min_length=1, max_length=128)
    display_description: str | None = Field(default=None, max_length=4_000)


class ToolManagerConfig(PluginConfig):
    """``{mode: allowlist, tools: [read_file, {tool: echo, display_name: say}]}``; an empty allowlist hides all tools.

    A ``denylist`` hides the named tools. Only the tools of an allowlist can get another name or description.
    """

    mode: Literal["allowlist", "denylist"] = "allowlist"
    tools: tuple[ToolEntry, ...]

    @field_validator("tools", mode="before")
    @classmethod
    def _short_form(cls, tools: object) -> object:
        if isinstance(tools, list | tuple):
            return tuple({"tool": tool} if isinstance(tool, str) else tool for tool in tools)
        return tools

    @field_validator("tools")
    @classmethod
    def _names(cls, tools: tuple[ToolEntry, ...]) -> tuple[ToolEntry, ...]:
        # Two tools under one name could not be called apart.
        shown = [entry.display_name or entry.tool for entry in tools]
        twice = next((name for name in shown if shown.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} would name two tools")
        pattern = next((entry.tool for entry in tools if "*" in entry.tool and entry.display_name), None)
        if pattern is not None:
            raise ValueError(f"{pattern!r} can match several tools, so it cannot have a display_name")
        return tools


class ToolManager(MiddlewarePlugin):
    """Hides tools of one server, and gives others another name or description."""

    per_server = True
    Config = ToolManagerConfig
    config: ToolManagerConfig

    def on_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        if self.config.mode == "denylist":
            return [tool for tool in tools if self._entry(tool) is None]
        return [_renamed(tool, entry) for tool in tools if (entry := self._entry(tool)) is not None]

    def tool_patterns(self) -> Sequence[str]:
        return [entry.tool for entry in self.config.tools]

    def _entry(self, tool: Mapping[str, Any]) -> ToolEntry | None:
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(name, str):
            return None
        return next((entry for entry in self.config.tools if _fits(name, entry.tool)), None)


def _fits(name: str, pattern: str) -> bool:
    """Compares names; only ``*`` is a wildcard, so that a name with brackets can be listed as it is."""
    return name == pattern or ("*" in pattern and fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]")))


def _renamed(tool: Mapping[str, Any], entry: ToolEntry) -> Mapping[str, Any]:
    if entry.display_name is None and entry.display_description is None:
        return tool
    shown = dict(tool)
    if entry.display_description is not None:
        shown["description"] = entry.display_description
    if entry.display_name is not None and entry.display_name != tool["name"]:
        shown["name"] = entry.display_name
        # The call needs the name that the server knows.
        meta = tool.get("_meta")
        shown["_meta"] = {**(meta if isinstance(meta, Mapping) else {}), UPSTREAM_NAME_KEY: tool["name"]}
    return shown


META_KEY = "wicketgate/tokens"


class CallTrace(MiddlewarePlugin):
    """Adds one text block to every result of a tool: server, tool, argument names, its size, and the id of the call.

    It is for setting a gateway up, not for production.
    """

    async def on_result(self, request: Request, result: Result) -> Continue:
        if request.method != "tools/call":  # results of other methods have no place for a block
            return CONTINUE
        _, size_bytes = await _json_size(result)
        lines = (
            "Wicketgate trace",
            f"server: {request.server}",
            f"tool: {request.name}",
            f"arguments: {', '.join(sorted(request.arguments))}",
            f"result_bytes: {size_bytes}",
            f"request_id: {request.id}",
        )
        # The trace comes last, behind what the tool gave.
        content = result.get("content")
        blocks = list(content) if isinstance(content, list) else []
        return Continue({**result, "content": [*blocks, {"type": "text", "text": "\n".join(lines)}]})


class TokenUsage(MiddlewarePlugin):
    """Puts ``{"arguments", "result"}`` under ``_meta["wicketgate/tokens"]`` of the result, and into the audit record.

    A token is estimated at four characters: exact counts are kept for what has to fit a budget.
    """

    async def on_result(self, request: Request, result: Result) -> Continue:
        # The part that a model is given, whatever the method.
        shown = next((result[key] for key in ("content", "contents", "messages") if key in result), None)
        arguments_chars, _ = await _json_size(request.arguments)
        result_chars, _ = await _json_size(shown)
        usage = {"arguments": estimate_tokens(arguments_chars), "result": estimate_tokens(result_chars)}
        meta = result.get("_meta")
        kept: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
        note = f"arguments: {usage['arguments']}, result: {usage['result']}"
        return Continue({**result, "_meta": {**kept, META_KEY: usage}}, note)


async def _json_size(value: object) -> tuple[int, int]:
    """Returns characters and bytes of a value as compact JSON, zero if there is none. Large ones go to a thread."""
    return await asyncio.to_thread(_measure, value) if is_bulky(value) else _measure(value)


def _measure(value: object) -> tuple[int, int]:
    written = json_bytes(value)
    return (0, 0) if written is None else (count_json_chars(written), len(written))
