"""What a server is shown of the client behind a call: its capabilities, and what travels with the call."""

from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient

DONE = {"tools/call": lambda params: {"result": {"content": [], "resultType": "complete"}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@requirement("UP-80")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_server_is_shown_the_callers_own_elicitation_and_nothing_else(era: str) -> None:
    declared: list[dict[str, Any]] = [
        {},
        {"sampling": {}, "roots": {}},
        {"elicitation": {}},
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": {}, "url": {}}, "sampling": {}},
    ]
    async with (
        scripted_server(DONE) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        for capabilities in declared:
            await WireClient(service, era, capabilities=capabilities).call("raw__job")
    shown = [message["params"]["_meta"][CAPABILITIES] for message in server.seen("tools/call")]
    assert shown == [
        {},
        {},
        {"elicitation": {}},
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": {}, "url": {}}},
    ]
