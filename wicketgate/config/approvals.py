"""What stands behind approvals: the key they are sealed with, and where it is remembered that one was used."""

import logging
import secrets
from time import time

from wicketgate.access.aes_gcm import AesGcm
from wicketgate.access.approval import NONCE_BYTES, ApprovalSeal
from wicketgate.config.settings import AuthSettings, StorageSettings
from wicketgate.engine.approvals import ApprovalDesk
from wicketgate.storage.once_store import MemoryOnceStore, SQLiteOnceStore

log = logging.getLogger("wicketgate.approvals")


def make_approval_desk(settings: AuthSettings, storage: StorageSettings) -> ApprovalDesk:
    """Without ``approval_key`` the key is random, so that approvals end with the process. Raises ConfigError."""
    file = storage.sqlite_file
    if settings.approval_key and file is None:
        log.warning("approvals outlive a restart, but which were used does not: set storage.url to a file")
    return ApprovalDesk(_seal(settings), SQLiteOnceStore(file, time) if file else MemoryOnceStore(time))


def reseal(desk: ApprovalDesk, before: AuthSettings, after: AuthSettings) -> None:
    """Follow the configuration. Approvals under another key than the new one are void."""
    if (before.approval_key, before.approval_ttl_s) != (after.approval_key, after.approval_ttl_s):
        desk.seal = _seal(after)


def _seal(settings: AuthSettings) -> ApprovalSeal:
    secret = settings.approval_key.get_secret_value().encode() if settings.approval_key else secrets.token_bytes(32)
    return ApprovalSeal(AesGcm(secret), time, lambda: secrets.token_bytes(NONCE_BYTES), ttl_s=settings.approval_ttl_s)
