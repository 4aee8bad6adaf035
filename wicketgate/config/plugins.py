"""Makes the plugin chain and the auditor from the section ``plugins`` (ROUTE-18, ROUTE-19, ACCESS-23 to ACCESS-27).

Plugins that come with the program are found by name, those of other packages by entry point.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, field_validator

from wicketgate.config.faults import faults
from wicketgate.config.settings import PluginSettings, PluginsSettings
from wicketgate.errors import ConfigError
from wicketgate.gateway.audit import Attached, AuditFailed, Auditor
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.plugin_api import API_VERSION, MiddlewarePlugin, Plugin, PluginConfig, SecurityPlugin
from wicketgate.plugins.filters import PiiFilter, PromptInjectionFilter, SecretsFilter
from wicketgate.plugins.rewriting import CallTrace, TokenUsage, ToolManager
from wicketgate.storage.audit_file import AuditFile, BatchedSink, BatchWriter, csv_header, csv_line, json_line
from wicketgate.storage.audit_read import AuditReader, PostgresRows, SQLiteRows

log = logging.getLogger("wicketgate.plugins")
audit_log = logging.getLogger("wicketgate.audit")

Config = TypeVar("Config", bound=PluginConfig)

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
    """Makes the chain; None if no plugin is configured. Raises ConfigError that names the place."""
    by_server: dict[str, list[Installed]] = {}
    for kind, server, index, entry in _entries(settings):
        where = f"plugins.{kind}.{server}[{index}]"
        by_server.setdefault(server, []).append(
            Installed(entry.handler, _make_plugin(entry, kind, server, where), entry.priority, entry.critical)
        )
    return PluginChain(by_server, now) if by_server else None


def plugin_lines(settings: PluginsSettings) -> Iterator[str]:
    """Yields a line for each plugin, for ``wicketgate check``: in the order in which each server's plugins run."""
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


def _make_plugin(entry: PluginSettings, kind: str, server: str, where: str) -> Plugin:
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
    config = _checked(plugin.Config, entry, where)
    try:
        return plugin(config)
    except Exception:  # code of others may raise anything; the start must name the plugin
        log.exception("the plugin %s cannot be created", entry.handler)
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
            f"Invalid configuration: {where}.handler: several packages provide a plugin {handler!r}: {packages}"
        )
    try:
        loaded: Any = next(iter(found)).load()
    except Exception:  # code of others may raise anything at import; the start must name the plugin
        log.exception("the plugin %s cannot be imported", handler)
        raise ConfigError(
            f"Invalid configuration: {where}.handler: the package of {handler!r} cannot be imported; the log says why"
        ) from None
    if not (isinstance(loaded, type) and issubclass(loaded, SecurityPlugin | MiddlewarePlugin)):
        raise ConfigError(f"Invalid configuration: {where}.handler: {handler!r} is not a plugin class")
    return loaded


_SQLITE = "sqlite:///"


class _FileConfig(PluginConfig):
    path: Path


class _SqlConfig(PluginConfig):
    url: str

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        if not re.fullmatch(rf"(?:{_SQLITE}|postgres(?:ql)?://).+", url):
            raise ValueError("must be sqlite:///file.db or postgresql://host/database")
        return url


def make_auditor(
    settings: PluginsSettings, wall_clock: Callable[[], float], digest_key: str | None = None
) -> Auditor | None:
    """Makes the auditor; None without sinks. Raises ConfigError if a critical sink cannot be written (ACCESS-25)."""
    sinks: list[Attached] = []
    for index, entry in enumerate(settings.auditing.get("_global", ())):
        if not entry.enabled:
            continue
        where = f"plugins.auditing._global[{index}]"
        writer = _make_writer(entry, where)
        try:
            writer.probe()
        except AuditFailed as failure:
            if entry.critical:
                raise ConfigError(f"Invalid configuration: {where}: it cannot be written: {failure}") from None
            audit_log.error("%s: it cannot be written, and records are lost until it can: %s", where, failure)
        sinks.append(Attached(entry.handler, BatchedSink(writer), entry.critical))
    return Auditor(sinks, wall_clock=wall_clock, digest_key=digest_key) if sinks else None


def make_audit_reader(settings: PluginsSettings) -> AuditReader | None:
    """Makes the reader of the first database of audit records; None without one. Opens nothing yet. Raises
    ConfigError."""
    for index, entry in enumerate(settings.auditing.get(GLOBAL, ())):
        if entry.enabled and entry.handler == "audit_sql":
            config = _checked(_SqlConfig, entry, f"plugins.auditing._global[{index}]")
            if config.url.startswith(_SQLITE):
                return AuditReader(SQLiteRows(Path(config.url.removeprefix(_SQLITE))))
            return AuditReader(PostgresRows(config.url))
    return None


def _make_writer(entry: PluginSettings, where: str) -> BatchWriter:
    kind = _AUDIT_WRITERS.get(entry.handler)
    if kind is None:
        raise ConfigError(
            f"Invalid configuration: {where}.handler: no auditing plugin is called {entry.handler!r}; there are "
            f"{', '.join(sorted(_AUDIT_WRITERS))}"
        )
    model, make = kind
    config = _checked(model, entry, where)
    try:
        return make(config)
    except ConfigError as error:
        raise ConfigError(f"Invalid configuration: {where}: {error}") from None


def _checked(model: type[Config], entry: PluginSettings, where: str) -> Config:
    try:
        return model.model_validate(entry.config)
    except ValidationError as error:
        fault = next(faults(error, f"{where}.config", model=model))
        raise ConfigError(f"Invalid configuration: {fault}") from None


def _sql(config: _SqlConfig) -> BatchWriter:
    from wicketgate.storage.audit_sql import PostgresAudit, SQLiteAudit

    if config.url.startswith(_SQLITE):
        return SQLiteAudit(Path(config.url.removeprefix(_SQLITE)))
    return PostgresAudit(config.url)


_AUDIT_WRITERS: Mapping[str, tuple[type[PluginConfig], Callable[..., BatchWriter]]] = {
    "audit_jsonl": (_FileConfig, lambda config: AuditFile(config.path, json_line)),
    "audit_csv": (_FileConfig, lambda config: AuditFile(config.path, csv_line, csv_header())),
    "audit_sql": (_SqlConfig, _sql),
}
