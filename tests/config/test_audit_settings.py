"""The settings of the audit log reach it (ACCESS-61, ACCESS-63)."""

import pytest
from pydantic import ValidationError

from tests.support.requirement import requirement
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.config.runtime import call_policies
from wicketgate.config.settings import Settings

KEY = "k" * 32
LOOK = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


@requirement("ACCESS-63")
@pytest.mark.parametrize(
    ("upstream", "may_write"),
    [
        ({"command": ["server"]}, True),
        ({"url": "http://127.0.0.1:1/mcp"}, True),
        ({"url": "http://127.0.0.1:1/mcp", "read_only": ["lo*"]}, False),
        ({"openapi": "service.json"}, False),
        ({"python": "tools:registry"}, False),
    ],
    ids=["stdio", "http", "operator", "openapi", "python"],
)
def test_the_kind_of_an_upstream_decides_whose_hint_counts(upstream: dict[str, object], may_write: bool) -> None:
    settings = Settings.model_validate({"upstreams": [{"name": "up", **upstream}]})
    assert call_policies(settings)["up"].may_write(mcp_tool_to_selectable(LOOK, "up")) is may_write


@requirement("ACCESS-61")
def test_a_key_for_digests_is_long_and_a_secret() -> None:
    for weak in ("", "short"):
        with pytest.raises(ValidationError, match="32 random characters"):
            Settings.model_validate({"auth": {"audit_key": weak}})
    settings = Settings.model_validate({"auth": {"audit_key": KEY}})
    assert KEY in settings.secrets()
    assert KEY not in repr(settings)
