"""The real process with a real HTTP service behind its OpenAPI document, and a real token server (UP-28)."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import yaml

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.mcp_client import call_statelessly
from tests.support.orders_service import app as orders_app
from tests.support.process import ROOT
from tests.support.requirement import requirement
from tests.support.served import serving, write_config


async def meta_tool(http: httpx.AsyncClient, name: str, **arguments: Any) -> dict[str, Any]:
    answer = await call_statelessly(http, name, arguments)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = next(line.removeprefix("data: ") for line in reversed(text.splitlines()) if line.startswith("data: {"))
    result: dict[str, Any] = json.loads(text)["result"]
    return result


@requirement("CARD-18", "UP-28")
async def test_a_model_finds_and_calls_the_operations_of_a_service(tmp_path: Path) -> None:
    tokens: list[dict[str, str]] = []

    def token(seen: Seen) -> Reply:
        tokens.append(dict(parse_qsl(seen.body.decode())))
        return Reply(json.dumps({"access_token": f"secret-token-{len(tokens)}", "token_type": "Bearer"}).encode())

    async with HttpService(app=orders_app) as service, HttpService(token) as token_server:
        (tmp_path / "orders.json").write_text(json.dumps(orders_app.openapi()))
        oauth = {
            "token_url": token_server.url,
            "client_id": "gw",
            "client_secret": "client-secret-1",
            "scope": "orders",
        }
        upstream = {
            "name": "orders",
            "openapi": str(tmp_path / "orders.json"),
            "base_url": service.url,
            "headers": {"X-Tenant": "tenant-1"},
            "oauth": oauth,
        }
        config = write_config(tmp_path, upstreams=[upstream], server={"log_level": "debug"})
        async with serving(config) as (running, http):
            found = await meta_tool(http, "tool_browse", query="look at an order")
            cards = {card["name"]: card for card in found["structuredContent"]["cards"]}
            assert cards["getOrder"]["description"] == "Look at an order"
            tool_id = cards["getOrder"]["id"]
            everything = await meta_tool(http, "tool_browse", path="/orders")
            assert "events" not in json.dumps(everything)

            refused = await meta_tool(http, "tool_execute", tool_id=tool_id, args={})
            assert refused["structuredContent"]["error"] == "ARGS_INVALID"
            climbing = await meta_tool(http, "tool_execute", tool_id=tool_id, args={"order_id": "../files"})
            assert climbing["structuredContent"]["error"] == "ARGS_INVALID"
            assert service.seen == []

            args = {"order_id": "o 1?x=y", "tags": ["a,b", "c"], "ratio": 0.5}
            done = await meta_tool(http, "tool_execute", tool_id=tool_id, args=args)
            assert done["structuredContent"]["status"] == "ok"
            missing = await meta_tool(http, "tool_execute", tool_id=tool_id, args={"order_id": "missing"})
            assert (missing["isError"], missing["structuredContent"]["status"]) == (True, "error")
            assert "404" in missing["structuredContent"]["summary"]
            assert await running.stop() == 0
        assert "secret-token" not in running.stdout + running.stderr
        assert "client-secret-1" not in running.stdout + running.stderr
    seen = service.seen[0]
    assert seen.target == "/orders/o%201%3Fx%3Dy?tags=a%2Cb&tags=c&ratio=0.5"
    assert seen.headers["authorization"] == "Bearer secret-token-1"
    assert seen.headers["x-tenant"] == "tenant-1"
    assert "wg_" not in json.dumps(dict(seen.headers)), "the client's own credential stays here"
    assert tokens == [{"grant_type": "client_credentials", "scope": "orders", "client_id": "gw"}]


@requirement("UP-28")
async def test_the_example_of_the_guide_works(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "guide" / "openapi-services.md").read_text()
    _, document, config = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (tmp_path / "orders.yaml").write_text(document)
    answer = Reply(json.dumps({"access_token": "t", "token_type": "Bearer"}).encode())
    async with HttpService(lambda seen: answer) as token_server, HttpService(lambda seen: Reply(b"{}")) as service:
        [upstream] = yaml.safe_load(config.replace("${TENANT}", "x").replace("${CLIENT_SECRET}", "y"))["upstreams"]
        upstream["openapi"] = str(tmp_path / upstream["openapi"])
        upstream["base_url"] = service.url + "/v1"
        upstream["oauth"]["token_url"] = token_server.url
        path = write_config(tmp_path, upstreams=[upstream])
        async with serving(path) as (running, http):
            cards = (await meta_tool(http, "tool_browse", path="/orders"))["structuredContent"]["cards"]
            tool_id = next(card["id"] for card in cards if "get" in card["id"])
            await meta_tool(http, "tool_execute", tool_id=tool_id, args={"order_id": "o-1", "tags": ["a", "b"]})
            assert await running.stop() == 0
    assert [seen.target for seen in service.seen] == ["/v1/orders/o-1?tags=a&tags=b"]
