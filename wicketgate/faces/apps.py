"""MCP Apps: pages of servers that a client shows, and the tools that only such pages use (ROUTE-50 to ROUTE-52)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from wicketgate.ports import SilentCaller

APPS = "io.modelcontextprotocol/ui"
"""The name of the extension, in capabilities of clients and servers."""

SHOWS_APPS = SilentCaller(MappingProxyType({"extensions": {APPS: {}}}))
"""Stands for any client that shows pages."""


def shows_apps(capabilities: Mapping[str, Any]) -> bool:
    """True for a client that declared that it shows pages: it keeps their tools from its model."""
    extensions = capabilities.get("extensions")
    return extensions is not None and isinstance(extensions, Mapping) and APPS in extensions
