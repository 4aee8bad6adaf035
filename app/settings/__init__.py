"""What can be configured, with its bounds and defaults (DESIGN §2); ``edges/configuration`` reads it.

Every value has a default that is safe, or is required; an unknown key is an error. Nobody imports an instance: it is
made once and passed down as plain values.
"""

from app.settings.auth import AuthSettings, KeySettings
from app.settings.base import LOOPBACK_HOSTS, SECRET_NAME
from app.settings.engine import EngineSettings, ResumeSettings
from app.settings.model import FallbackSettings, ModelChoice, ModelSettings
from app.settings.plugins import PluginSettings, PluginsSettings
from app.settings.root import FACES, Face, McpSettings, ServerSettings, Settings
from app.settings.storage import PinSettings, QuotaSettings, StorageSettings
from app.settings.upstreams import BreakerSettings, CacheSettings, OAuthSettings, RetrySettings, UpstreamSettings

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
