"""From what is configured under ``plugins.auditing`` to the auditor (gatekit F)."""

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError, field_validator

from wicketgate.config.faults import faults
from wicketgate.config.settings import PluginSettings, PluginsSettings
from wicketgate.errors import ConfigError
from wicketgate.gateway.audit import Attached, AuditFailed, Auditor
from wicketgate.plugin_api import PluginConfig
from wicketgate.storage.audit_batches import BatchedSink, BatchWriter
from wicketgate.storage.audit_file import AuditFile, csv_header, csv_line, json_line
from wicketgate.storage.audit_sql import PostgresAudit, SQLiteAudit

log = logging.getLogger("wicketgate.audit")

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


def make_auditor(settings: PluginsSettings, wall_clock: Callable[[], float]) -> Auditor | None:
    """None when nothing is configured. Raises ConfigError when a critical sink cannot be written (G113)."""
    sinks: list[Attached] = []
    for index, entry in enumerate(settings.auditing.get("_global", ())):
        if not entry.enabled:
            continue
        where = f"plugins.auditing._global[{index}]"
        writer = _make(entry, where)
        try:
            writer.probe()
        except AuditFailed as failure:
            if entry.critical:
                raise ConfigError(f"Invalid configuration: {where}: it cannot be written: {failure}") from None
            log.error("%s: it cannot be written, and records are lost until it can: %s", where, failure)
        sinks.append(Attached(entry.handler, BatchedSink(writer), entry.critical))
    return Auditor(sinks, wall_clock=wall_clock) if sinks else None


def _make(entry: PluginSettings, where: str) -> BatchWriter:
    kind = _KINDS.get(entry.handler)
    if kind is None:
        raise ConfigError(
            f"Invalid configuration: {where}.handler: no auditing plugin is called {entry.handler!r}; there are "
            f"{', '.join(sorted(_KINDS))}"
        )
    model, make = kind
    try:
        config = model.model_validate(entry.config)
    except ValidationError as error:
        raise ConfigError(f"Invalid configuration: {next(faults(error, f'{where}.config'))}") from None
    try:
        return make(config)
    except ConfigError as error:
        raise ConfigError(f"Invalid configuration: {where}: {error}") from None


def _sql(config: _SqlConfig) -> BatchWriter:
    if config.url.startswith(_SQLITE):
        return SQLiteAudit(Path(config.url.removeprefix(_SQLITE)))
    return PostgresAudit(config.url)


_KINDS: Mapping[str, tuple[type[PluginConfig], Callable[..., BatchWriter]]] = {
    "audit_jsonl": (_FileConfig, lambda config: AuditFile(config.path, json_line)),
    "audit_csv": (_FileConfig, lambda config: AuditFile(config.path, csv_line, csv_header())),
    "audit_sql": (_SqlConfig, _sql),
}
