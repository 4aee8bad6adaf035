"""The sections of the configuration, each with its bounds and defaults; ``settings_file.load_settings`` reads them.

Public are the names in ``__all__``. Settings are frozen, and an unknown key is an error. One instance is made at the
start and passed down as plain values.
"""

from wicketgate.config.settings.access import AuthSettings, KeySettings
from wicketgate.config.settings.base import LOOPBACK_HOSTS, SECRET_NAME
from wicketgate.config.settings.browse import BrowseSettings
from wicketgate.config.settings.chat import EngineSettings, ModelChoice, ModelSettings, ResumeSettings
from wicketgate.config.settings.root import (
    FACES,
    GATE_NAME,
    NetworkSettings,
    PinSettings,
    PluginSettings,
    PluginsSettings,
    ServerSettings,
    Settings,
    StorageSettings,
    TaskSettings,
    TlsSettings,
)
from wicketgate.config.settings.upstreams import UpstreamSettings

__all__ = [
    "FACES",
    "GATE_NAME",
    "LOOPBACK_HOSTS",
    "SECRET_NAME",
    "AuthSettings",
    "BrowseSettings",
    "EngineSettings",
    "KeySettings",
    "ModelChoice",
    "ModelSettings",
    "NetworkSettings",
    "PinSettings",
    "PluginSettings",
    "PluginsSettings",
    "ResumeSettings",
    "ServerSettings",
    "Settings",
    "StorageSettings",
    "TaskSettings",
    "TlsSettings",
    "UpstreamSettings",
]
