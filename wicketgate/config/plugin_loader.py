"""From what is configured under ``plugins`` to the chain: built-in plugins by name, others by entry point (S2)."""

import logging
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from wicketgate.config.faults import faults
from wicketgate.config.settings import PluginSettings, PluginsSettings
from wicketgate.errors import ConfigError
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.plugin_api import API_VERSION, MiddlewarePlugin, Plugin, SecurityPlugin
from wicketgate.plugins.filters import PiiFilter, PromptInjectionFilter, SecretsFilter
from wicketgate.plugins.result_notes import CallTrace, TokenUsage
from wicketgate.plugins.tool_manager import ToolManager

log = logging.getLogger("wicketgate.plugins")

ENTRY_POINTS = "wicketgate.plugins"

BUILT_IN: Mapping[str, type[Plugin]] = {
    "tool_manager": ToolManager,
    "secrets_filter": SecretsFilter,
    "pii_filter": PiiFilter,
    "prompt_injection": PromptInjectionFilter,
    "call_trace": CallTrace,
    "token_usage": TokenUsage,
}


def make_plugin_chain(settings: PluginsSettings, now: Callable[[], float]) -> PluginChain | None:
    """None when nothing is configured. Raises ConfigError that names the place."""
    by_server: dict[str, list[Installed]] = {}
    for kind, server, index, entry in _entries(settings):
        where = f"plugins.{kind}.{server}[{index}]"
        by_server.setdefault(server, []).append(
            Installed(entry.handler, _make(entry, kind, server, where), entry.priority, entry.critical)
        )
    return PluginChain(by_server, now) if by_server else None


def plugin_lines(settings: PluginsSettings) -> Iterator[str]:
    """What is configured, for ``wicketgate check``: in the order in which each server's plugins run."""
    entries = sorted(_entries(settings), key=lambda entry: (entry[1] != GLOBAL, entry[1], entry[3].priority))
    for kind, server, _, entry in entries:
        yield f"plugin: {server}: {entry.handler} ({kind}, priority {entry.priority}{_lenient(entry)})"
    for entry in settings.auditing.get(GLOBAL, ()):
        if entry.enabled:
            yield f"audit: {entry.handler}{_lenient(entry)}"


def _lenient(entry: PluginSettings) -> str:
    return "" if entry.critical else ", not critical"


def _entries(settings: PluginsSettings) -> Iterator[tuple[str, str, int, PluginSettings]]:
    for kind, servers in (("security", settings.security), ("middleware", settings.middleware)):
        for server, entries in servers.items():
            yield from ((kind, server, index, entry) for index, entry in enumerate(entries) if entry.enabled)


def _make(entry: PluginSettings, kind: str, server: str, where: str) -> Plugin:
    plugin = _find(entry.handler, where)
    if plugin.api_version != API_VERSION:
        raise ConfigError(
            f"Invalid configuration: {where}: {entry.handler!r} is written for version {plugin.api_version} of the "
            f"plugin interface; this is version {API_VERSION}"
        )
    if plugin.kind != kind:
        raise ConfigError(f"Invalid configuration: {where}: {entry.handler!r} belongs under plugins.{plugin.kind}")
    if plugin.per_server and server == GLOBAL:
        raise ConfigError(
            f"Invalid configuration: {where}: {entry.handler!r} cannot be under {GLOBAL}; put it under the name of an "
            "upstream"
        )
    try:
        config = plugin.Config.model_validate(entry.config)
    except ValidationError as error:
        raise ConfigError(f"Invalid configuration: {next(faults(error, f'{where}.config'))}") from None
    try:
        return plugin(config)
    except Exception:  # what a plugin of others does when it is made is its own; the start must say whose it is
        log.exception("the plugin %s cannot be made", entry.handler)
        raise ConfigError(
            f"Invalid configuration: {where}: {entry.handler!r} cannot start with this config; the log says why"
        ) from None


def _find(handler: str, where: str) -> type[Plugin]:
    built_in = BUILT_IN.get(handler)
    if built_in is not None:
        return built_in
    found = entry_points(group=ENTRY_POINTS, name=handler)
    if not found:
        known = sorted({*BUILT_IN, *entry_points(group=ENTRY_POINTS).names})
        raise ConfigError(
            f"Invalid configuration: {where}.handler: no plugin is called {handler!r}; there are {', '.join(known)}"
        )
    if len(found) > 1:
        packages = ", ".join(sorted({point.dist.name for point in found if point.dist} or {"?"}))
        raise ConfigError(
            f"Invalid configuration: {where}.handler: several packages bring a plugin {handler!r}: {packages}"
        )
    try:
        loaded: Any = next(iter(found)).load()
    except Exception:  # whatever a module of others does at import: it is theirs, and the start must say whose it is
        log.exception("the plugin %s cannot be imported", handler)
        raise ConfigError(
            f"Invalid configuration: {where}.handler: the package of {handler!r} cannot be imported; the log says why"
        ) from None
    if not (isinstance(loaded, type) and issubclass(loaded, SecurityPlugin | MiddlewarePlugin)):
        raise ConfigError(f"Invalid configuration: {where}.handler: {handler!r} is no plugin class")
    return loaded
