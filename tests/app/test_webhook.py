"""The webhook of calls that wait for an approval (OPS-567)."""

import json
import logging

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.config.settings_file import settings_from
from wicketgate.errors import ConfigError

RULES = [{"match": "files:*", "approval": {"by": "role:lead"}}]


async def ask(service: RunningService, path: str) -> None:
    body = {"operation": "/files/read_file", "input": {"path": path}}
    assert (await service.http.post("/operations/call", json=body)).json()["code"] == "APPROVAL_REQUIRED"


@requirement("OPS-567")
async def test_each_call_that_begins_to_wait_is_told_once_and_a_failure_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []

    def take(seen: Seen) -> Reply:
        told.append(json.loads(seen.body)["text"])
        return Reply(status=500 if len(told) == 1 else 200)

    async with HttpService(take) as hook:
        settings = {"access": RULES, "auth": {"approval_webhook": f"{hook.url}/secret-path"}}
        async with running_service(upstreams=[FileServer()], settings=settings) as service:
            with caplog.at_level(logging.WARNING, "wicketgate.approvals"):
                for path in ("a", "a", "b", "c"):
                    await ask(service, path)
                await until(lambda: len(told) == 3, bound_s=BOUND_S)
    assert "owner_1 waits for an approval of files:read_file" in told[0]
    assert "role:lead" in told[0] and told[0].endswith("/console/approvals")
    warnings = [record.getMessage() for record in caplog.records if "webhook" in record.getMessage()]
    assert len(warnings) == 1 and "secret-path" not in warnings[0]


@requirement("OPS-567")
@pytest.mark.parametrize("url", ["", "ftp://x/y", "hooks.example.com"])
def test_a_webhook_that_is_no_url_stops_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="approval_webhook"):
        settings_from({"auth": {"approval_webhook": url}})
