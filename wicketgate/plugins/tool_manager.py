"""Selection and naming of the tools of a server (S2 "Server-Specific Security"; gatekit E).

It works on the definitions at each refresh, so browsing, listing and calling agree: a hidden tool is not in the
catalog, and a renamed one is there under its new name only.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, field_validator

from wicketgate.plugin_api import UPSTREAM_NAME_KEY, MiddlewarePlugin, PluginConfig


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
            raise ValueError(f"{pattern!r} can fit several tools, so it cannot have a display_name")
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
