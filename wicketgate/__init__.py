"""Wicketgate as a library: any number of tool servers behind a gate that shows a model only what it needs now
(LIB-1, LIB-2).

Stable: the names in ``__all__``, what their signatures take, and the wire forms that ``docs/spec`` describes. A change
to one of them is announced in CHANGELOG.md. Any other module is free to change at any time.

Importing this package is cheap, reads nothing and brings no web framework: each name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wicketgate.access.identity import Identity
    from wicketgate.catalog.card import ChoiceCard, make_choice_cards
    from wicketgate.catalog.catalog import Catalog, HydrationResult
    from wicketgate.catalog.router import Router
    from wicketgate.catalog.selectable import SelectableItem, mcp_tool_to_selectable
    from wicketgate.catalog.tool_id import ToolIdParts, format_tool_id, infer_namespace, parse_tool_id
    from wicketgate.config.settings import Settings
    from wicketgate.context.items import ContextItem, ItemKind, load_mcp_session_jsonl
    from wicketgate.context.manager import ContextManager, ContextPack, Phase
    from wicketgate.engine.contract import ChatRequest, InvalidRequest, parse_chat_request
    from wicketgate.errors import CatalogError, ConfigError, ContextOverflow, GatewayError, WicketgateError
    from wicketgate.faces.mcp.servers import McpGatewayServer, McpProxyServer
    from wicketgate.fleet.member import MultiplexUpstream
    from wicketgate.gate import Gate, running_engine
    from wicketgate.gateway.options import ExposureMode, RuntimeOptions, RuntimePolicies
    from wicketgate.gateway.runtime import ProxyRuntime
    from wicketgate.plugin_api import (
        ALLOW,
        CONTINUE,
        UPSTREAM_NAME_KEY,
        Allow,
        Block,
        Complete,
        Continue,
        Message,
        MiddlewarePlugin,
        PluginConfig,
        Request,
        Result,
        SecurityPlugin,
    )
    from wicketgate.ports import CallContext
    from wicketgate.results.envelope import ArtifactRef, ResultEnvelope, mcp_result_to_envelope
    from wicketgate.tools import Media, ToolContext, ToolFailed, ToolRegistry
    from wicketgate.upstreams.embedded import McpClientUpstream, StubUpstream

_MODULES = {
    "access.identity": ("Identity",),
    "catalog.card": ("ChoiceCard", "make_choice_cards"),
    "catalog.catalog": ("Catalog", "HydrationResult"),
    "catalog.router": ("Router",),
    "catalog.selectable": ("SelectableItem", "mcp_tool_to_selectable"),
    "catalog.tool_id": ("ToolIdParts", "format_tool_id", "infer_namespace", "parse_tool_id"),
    "config.settings": ("Settings",),
    "context.items": ("ContextItem", "ItemKind", "load_mcp_session_jsonl"),
    "context.manager": ("ContextManager", "ContextPack", "Phase"),
    "engine.contract": ("ChatRequest", "InvalidRequest", "parse_chat_request"),
    "errors": ("CatalogError", "ConfigError", "ContextOverflow", "GatewayError", "WicketgateError"),
    "faces.mcp.servers": ("McpGatewayServer", "McpProxyServer"),
    "fleet.member": ("MultiplexUpstream",),
    "gate": ("Gate", "running_engine"),
    "gateway.options": ("ExposureMode", "RuntimeOptions", "RuntimePolicies"),
    "gateway.runtime": ("ProxyRuntime",),
    "plugin_api": (
        *("ALLOW", "CONTINUE", "UPSTREAM_NAME_KEY", "Allow", "Block", "Complete", "Continue"),
        *("Message", "MiddlewarePlugin", "PluginConfig", "Request", "Result", "SecurityPlugin"),
    ),
    "ports": ("CallContext",),
    "results.envelope": ("ArtifactRef", "ResultEnvelope", "mcp_result_to_envelope"),
    "tools": ("Media", "ToolContext", "ToolFailed", "ToolRegistry"),
    "upstreams.embedded": ("McpClientUpstream", "StubUpstream"),
}
_HOME = {name: f"wicketgate.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "ALLOW",
    "CONTINUE",
    "UPSTREAM_NAME_KEY",
    "Allow",
    "ArtifactRef",
    "Block",
    "CallContext",
    "Catalog",
    "CatalogError",
    "ChatRequest",
    "ChoiceCard",
    "Complete",
    "ConfigError",
    "ContextItem",
    "ContextManager",
    "ContextOverflow",
    "ContextPack",
    "Continue",
    "ExposureMode",
    "Gate",
    "GatewayError",
    "HydrationResult",
    "Identity",
    "InvalidRequest",
    "ItemKind",
    "McpClientUpstream",
    "McpGatewayServer",
    "McpProxyServer",
    "Media",
    "Message",
    "MiddlewarePlugin",
    "MultiplexUpstream",
    "Phase",
    "PluginConfig",
    "ProxyRuntime",
    "Request",
    "Result",
    "ResultEnvelope",
    "Router",
    "RuntimeOptions",
    "RuntimePolicies",
    "SecurityPlugin",
    "SelectableItem",
    "Settings",
    "StubUpstream",
    "ToolContext",
    "ToolFailed",
    "ToolIdParts",
    "ToolRegistry",
    "WicketgateError",
    "format_tool_id",
    "infer_namespace",
    "load_mcp_session_jsonl",
    "make_choice_cards",
    "mcp_result_to_envelope",
    "mcp_tool_to_selectable",
    "parse_chat_request",
    "parse_tool_id",
    "running_engine",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
