"""The application as a whole: whom it serves without keys."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

from app.main import create_app
from middleware.front import Front
from tests.support.requirement import requirement
from tests.support.service import KEY, FileServer, running_service
from tests.support.wire_client import ACCEPT
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings

FAR = ("10.0.0.7", 40_000)
NEAR = ("127.0.0.1", 40_000)


async def status(settings: Settings, client: tuple[str, int], path: str) -> int:
    transport = httpx.ASGITransport(create_app(settings), client=client)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return (await http.get(path)).status_code


@requirement("ACCESS-5")
async def test_without_keys_only_callers_of_this_machine_are_served_whatever_the_server_listens_on() -> None:
    assert [await status(Settings(), FAR, path) for path in ("/healthz", "/metrics", "/readyz")] == [403] * 3
    assert [await status(Settings(), NEAR, path) for path in ("/healthz", "/metrics")] == [200, 401]


async def test_with_a_key_in_the_configuration_callers_from_elsewhere_are_served() -> None:
    key = {"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["*"]}
    settings = Settings.model_validate({"auth": {"keys": [key]}})
    assert [await status(settings, FAR, path) for path in ("/healthz", "/metrics")] == [200, 401]


@requirement("FACE-142")
async def test_a_request_passes_no_layers_of_the_framework_but_those_that_a_program_has_added() -> None:
    assert type(create_app(Settings()).build_middleware_stack()) is Front
    app = create_app(Settings())
    app.add_middleware(GZipMiddleware)
    assert type(app.build_middleware_stack()) is GZipMiddleware
    assert await status(Settings(), NEAR, "/nothing") == 401


@requirement("OPS-362")
@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "root_path"])
async def test_below_a_prefix_every_path_is_as_without_it(mounted: bool) -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        around = Starlette(routes=[Mount("/gate/here", service.app)])
        transport = httpx.ASGITransport(around) if mounted else httpx.ASGITransport(service.app, root_path="/gate/here")
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/gate/here") as http:
            for path in ("/healthz", "/readyz", "/console/", "/metrics", "/mcp", "/.well-known/nothing", "/nothing"):
                below, plain = await http.get(path), await service.http.get(path, headers={"Authorization": ""})
                assert (below.status_code, below.text) == (plain.status_code, plain.text), path
            message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            headers = {**ACCEPT, "Authorization": f"Bearer {KEY}", "Mcp-Session-Id": "nothing"}
            for path in ("/mcp", "/mcp/namespaced", "/mcp/nothing", "/mcp/", "//mcp", "/operations/call"):
                below = await http.post(f"http://localhost/gate/here{path}", json=message, headers=headers)
                plain = await service.http.post(f"{service.http.base_url}{path}", json=message, headers=headers)
                assert (below.status_code, below.text) == (plain.status_code, plain.text), path
            assert (await http.get("http://localhost/gate/hereafter/healthz")).status_code in (401, 404)
