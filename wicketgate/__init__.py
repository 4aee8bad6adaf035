"""Wicketgate as a library: any number of tool servers behind a gate that shows a model only what it needs now
(LIB-1, LIB-2).

Stable: the names in ``__all__``, what their signatures take, and the wire forms that ``docs/spec`` describes. A change
to one of them is announced in CHANGELOG.md. Any other module is free to change at any time.

Importing this package is cheap, reads nothing and brings no web framework: each name is loaded at its first use, and
only ``create_app`` loads one. ``__version__`` is that of the installation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from app.main import create_app
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
    from wicketgate.errors import (
        ApprovalRequired,
        ArgsInvalid,
        CatalogError,
        ConfigError,
        ConnectRequired,
        ContextOverflow,
        EngineError,
        Forbidden,
        GatewayError,
        HydrateFailed,
        PathInvalid,
        PathNotFound,
        RateLimited,
        SchemaInvalid,
        StoreUnavailable,
        UpstreamError,
        UpstreamTimeout,
        UpstreamUnavailable,
        ViewFailed,
        WicketgateError,
    )
    from wicketgate.faces.mcp.servers import McpGatewayServer, McpProxyServer
    from wicketgate.fleet.member import MultiplexUpstream
    from wicketgate.gate import Gate, running_engine
    from wicketgate.gateway.archive import Execution
    from wicketgate.gateway.browsing import Browse
    from wicketgate.gateway.calls import DryRun
    from wicketgate.gateway.catalog_keeper import RefreshReport
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
    from wicketgate.results.view import View
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
    "errors": (
        *("ApprovalRequired", "ArgsInvalid", "CatalogError", "ConfigError", "ConnectRequired", "ContextOverflow"),
        *("EngineError", "Forbidden", "GatewayError", "HydrateFailed", "PathInvalid", "PathNotFound", "RateLimited"),
        *("SchemaInvalid", "StoreUnavailable", "UpstreamError", "UpstreamTimeout", "UpstreamUnavailable"),
        *("ViewFailed", "WicketgateError"),
    ),
    "faces.mcp.servers": ("McpGatewayServer", "McpProxyServer"),
    "fleet.member": ("MultiplexUpstream",),
    "gate": ("Gate", "running_engine"),
    "gateway.archive": ("Execution",),
    "gateway.browsing": ("Browse",),
    "gateway.calls": ("DryRun",),
    "gateway.catalog_keeper": ("RefreshReport",),
    "gateway.options": ("ExposureMode", "RuntimeOptions", "RuntimePolicies"),
    "gateway.runtime": ("ProxyRuntime",),
    "plugin_api": (
        *("ALLOW", "CONTINUE", "UPSTREAM_NAME_KEY", "Allow", "Block", "Complete", "Continue"),
        *("Message", "MiddlewarePlugin", "PluginConfig", "Request", "Result", "SecurityPlugin"),
    ),
    "ports": ("CallContext",),
    "results.envelope": ("ArtifactRef", "ResultEnvelope", "mcp_result_to_envelope"),
    "results.view": ("View",),
    "tools": ("Media", "ToolContext", "ToolFailed", "ToolRegistry"),
    "upstreams.embedded": ("McpClientUpstream", "StubUpstream"),
}
_HOME = {name: f"wicketgate.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "ALLOW",
    "CONTINUE",
    "UPSTREAM_NAME_KEY",
    "Allow",
    "ApprovalRequired",
    "ArgsInvalid",
    "ArtifactRef",
    "Block",
    "Browse",
    "CallContext",
    "Catalog",
    "CatalogError",
    "ChatRequest",
    "ChoiceCard",
    "Complete",
    "ConfigError",
    "ConnectRequired",
    "ContextItem",
    "ContextManager",
    "ContextOverflow",
    "ContextPack",
    "Continue",
    "DryRun",
    "EngineError",
    "Execution",
    "ExposureMode",
    "Forbidden",
    "Gate",
    "GatewayError",
    "HydrateFailed",
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
    "PathInvalid",
    "PathNotFound",
    "Phase",
    "PluginConfig",
    "ProxyRuntime",
    "RateLimited",
    "RefreshReport",
    "Request",
    "Result",
    "ResultEnvelope",
    "Router",
    "RuntimeOptions",
    "RuntimePolicies",
    "SchemaInvalid",
    "SecurityPlugin",
    "SelectableItem",
    "Settings",
    "StoreUnavailable",
    "StubUpstream",
    "ToolContext",
    "ToolFailed",
    "ToolIdParts",
    "ToolRegistry",
    "UpstreamError",
    "UpstreamTimeout",
    "UpstreamUnavailable",
    "View",
    "ViewFailed",
    "WicketgateError",
    "create_app",
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
    found: Any
    if name == "create_app":
        from app.main import create_app as found  # written out: the wheel has it below this package
    elif name == "__version__":
        from importlib.metadata import version

        found = version(__name__)
    elif name in _HOME:
        found = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
