"""Makes the seal, and what stands behind approvals: the desk, and where it is remembered that one was used."""

import logging
import secrets
from time import time

from wicketgate.access.seal import ApprovalSeal, Seal
from wicketgate.config.settings import AuthSettings, Settings
from wicketgate.engine.approvals import ApprovalDesk
from wicketgate.storage.once_store import MemoryOnceStore, SQLiteOnceStore

log = logging.getLogger("wicketgate.approvals")


def make_seal(settings: AuthSettings) -> Seal:
    """Without ``seal_keys`` the key is random, so that what is sealed ends with the process."""
    return Seal(settings.ring(), secrets.token_bytes(32), time, lambda: secrets.token_urlsafe(12))


def make_approval_desk(settings: Settings, seal: Seal) -> ApprovalDesk:
    """Warns of what a restart would lose though the configuration wants to keep it. Raises ConfigError."""
    file = settings.storage.sqlite_file
    if settings.auth.seal_keys and file is None:
        log.warning("approvals outlive a restart, but which were used does not: set storage.url to a file")
    if not settings.auth.seal_keys and file is not None and any(rule.approval == "always" for rule in settings.access):
        log.warning("approvals end with this process, because auth.seal_keys is not set")
    used = SQLiteOnceStore(file, time) if file else MemoryOnceStore(time)
    return ApprovalDesk(ApprovalSeal(seal, ttl_s=settings.auth.approval_ttl_s), used)


def reseal(seal: Seal, desk: ApprovalDesk, settings: AuthSettings) -> None:
    """Follows the configuration. What was sealed under a key that is no longer configured is void."""
    seal.replace_keys(settings.ring())
    desk.seal = ApprovalSeal(seal, ttl_s=settings.approval_ttl_s)
