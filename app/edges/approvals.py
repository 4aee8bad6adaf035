"""What stands behind approvals: the key they are sealed with, and where it is remembered that one was used."""

import secrets
from time import time

from app.auth.approval import NONCE_BYTES, ApprovalSeal
from app.edges.aes_gcm import AesGcm
from app.edges.once_store import MemoryOnceStore
from app.engine.approvals import ApprovalDesk
from app.settings import AuthSettings


def make_approval_desk(settings: AuthSettings) -> ApprovalDesk:
    """Without ``approval_key`` the key is random, so that approvals end with the process."""
    secret = settings.approval_key.get_secret_value().encode() if settings.approval_key else secrets.token_bytes(32)
    seal = ApprovalSeal(AesGcm(secret), time, lambda: secrets.token_bytes(NONCE_BYTES), ttl_s=settings.approval_ttl_s)
    return ApprovalDesk(seal, MemoryOnceStore(time))
