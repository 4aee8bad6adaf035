"""The log warns at the start if a restart would lose approvals that the configuration means to keep."""

import logging
from pathlib import Path
from typing import Any

import pytest

from wicketgate.config.engine import make_approval_desk, make_seal
from wicketgate.config.settings import Settings
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import MemoryStore

GATED = {"access": [{"match": "files:*", "approval": "always"}]}
KEYS = {"auth": {"seal_keys": ["k" * 32]}}


@pytest.mark.parametrize(
    ("sections", "with_file", "warning"),
    [
        (GATED, False, ""),
        (GATED | KEYS, True, ""),
        ({}, True, ""),
        (GATED, True, "approvals are lost when this service stops, because auth.seal_keys is not set"),
        (GATED | KEYS, False, "the record of used ones does not: set storage.url to a file"),
    ],
)
async def test_what_a_restart_would_lose_is_logged(
    sections: dict[str, Any], with_file: bool, warning: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = {"storage": {"url": f"sqlite:///{tmp_path / 'store.db'}"}} if with_file else {}
    settings = Settings.model_validate({**sections, **storage})
    with caplog.at_level(logging.WARNING):
        await make_approval_desk(
            settings, make_seal(settings.auth, b"k" * 32), MemoryStore(), StorageMeasures()
        ).aclose()
    assert len(caplog.messages) == bool(warning)
    assert warning in caplog.text
