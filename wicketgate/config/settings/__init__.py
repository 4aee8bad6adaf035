"""What can be configured, with its bounds and defaults (DESIGN §2); ``edges/configuration`` reads it.

Every value has a default that is safe, or is required; an unknown key is an error. Nobody imports an instance: it is
made once and passed down as plain values.
"""

from wicketgate.config.settings.auth import AuthSettings, KeySettings
from wicketgate.config.settings.base import LOOPBACK_HOSTS, SECRET_NAME
from wicketgate.config.settings.engine import EngineSettings, ResumeSettings
from wicketgate.config.settings.model import FallbackSettings, ModelChoice, ModelSettings
from wicketgate.config.settings.plugins import PluginSettings, PluginsSettings
from wicketgate.config.settings.root import FACES, Face, McpSettings, NetworkSettings, ServerSettings, Settings
from wicketgate.config.settings.storage import PinSettings, QuotaSettings, StorageSettings
from wicketgate.config.settings.upstreams import (
    BreakerSettings,
    CacheSettings,
    OAuthSettings,
    RetrySettings,
    UpstreamSettings,
)

__all__ = [
    "FACES",
    "LOOPBACK_HOSTS",
    "SECRET_NAME",
    "AuthSettings",
    "BreakerSettings",
    "CacheSettings",
    "EngineSettings",
    "Face",
    "FallbackSettings",
    "KeySettings",
    "McpSettings",
    "ModelChoice",
    "ModelSettings",
    "NetworkSettings",
    "OAuthSettings",
    "PinSettings",
    "PluginSettings",
    "PluginsSettings",
    "QuotaSettings",
    "ResumeSettings",
    "RetrySettings",
    "ServerSettings",
    "Settings",
    "StorageSettings",
    "UpstreamSettings",
]
