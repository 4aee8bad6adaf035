"""Imports of a service for ordinary clients, and requests that come while it imports the SDK, in real processes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from tests.support.mcp_client import NEW
from tests.support.ports import free_port
from tests.support.process import Program, program
from tests.support.requirement import requirement
from tests.support.served import INITIALIZE, write_config
from tests.support.service import KEY

BOUND_S = 40.0
HEADERS = {"Authorization": f"Bearer {KEY}", "Accept": "application/json, text/event-stream"}

HELD = """
import sys, time
folder = sys.argv[1]
from importlib.machinery import PathFinder
from pathlib import Path

class Held:
    "Holds the import of the SDK's part of the doors until the file 'go' is there."
    def find_spec(self, name, path, target=None):
        if name != "app.mcp.sdk":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            print("loaded:", *sorted(sys.modules), flush=True)
            while not Path(folder, "go").exists():
                time.sleep(0.01)
            if Path(folder, "fail").exists():
                raise ImportError("no such thing")
            run(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Held())
"""
SERVE = (
    HELD
    + """
from wicketgate.__main__ import main
del sys.argv[1]
sys.argv[0] = "wicketgate"
main()
"""
)
LATE = {
    "mcp": "the SDK: server, client, sessions",
    "mcp_types": "its types, and its checks of each message by version",
    "httpx2": "the SDK's HTTP client",
    "wicketgate.faces.mcp.sdk_server": "the faces over the SDK",
}


UNUSED = {
    "cel_expr_python": "conditions of access rules",
    "cryptography": "what is sealed, and logins",
    "re2": "patterns of schemas, and filters",
    "joserfc": "tokens of issuers",
    "redis": "storage.url",
    "rich": "tables of other commands, and the command line of httpx",
    "wicketgate.models.anthropic.exchange": "a dialect of models",
    "wicketgate.models.openai.exchange": "another",
    "wicketgate.storage.sqlite": "storage.url",
    "wicketgate.upstreams.openapi.upstream": "a kind of upstream",
    "wicketgate.upstreams.python.upstream": "another",
    "wicketgate.login.user_logins": "accounts of users",
    "wicketgate.login.client": "logins",
    "wicketgate.login.assertion": "keys of the gate at issuers",
    "routers.connect": "pages of logins",
    "app.commands.connect": "another command",
    "app.workers.supervisor": "--workers",
}


@asynccontextmanager
async def held(
    folder: Path, *args: str, code: str = SERVE, env: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """Gives the program, whose import of the SDK is held."""
    async with program("-c", code, str(folder), *args, cold=True, env=env) as running:
        yield running


async def loaded_by(running: Program) -> set[str]:
    """Returns the modules that were there when the import of the SDK began."""
    found = await running.wait_for(r"loaded: (.*)\n", "stdout")
    return set(found.group(1).split())


def body(method: str, **params: Any) -> dict[str, Any]:
    """A request of the era without sessions."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}


def client(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, trust_env=False, timeout=BOUND_S)


def serve(folder: Path, port: int) -> tuple[str, ...]:
    return ("serve", "--config", str(write_config(folder, upstreams=[])), "--port", str(port))


def needs_sdk(http: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """Opens a session with a member that is not known past the SDK."""
    odd = {**INITIALIZE, "params": {**INITIALIZE["params"], "unheard": 1}}
    return asyncio.create_task(http.post("/mcp", json=odd))


async def serve_ordinary(http: httpx.AsyncClient) -> None:
    """All that ordinary clients of both eras ask."""
    newer = {"mcp-protocol-version": NEW, "mcp-method": "tools/list"}
    opened = await http.post("/mcp", json=INITIALIZE)
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    call = {"name": "tool_browse", "arguments": {"query": "a"}}
    asked: list[tuple[Mapping[str, Any], Mapping[str, str], int]] = [
        ({"jsonrpc": "2.0", "method": "notifications/initialized"}, session, 202),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, session, 200),
        ({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, session, 200),
        ({"jsonrpc": "2.0", "id": 3, "method": "ping"}, session, 200),
        ({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": call}, {}, 200),
        (body("tools/list"), newer, 200),
        (body("tools/call", **call), {**newer, "mcp-method": "tools/call", "mcp-name": "tool_browse"}, 200),
    ]
    for message, headers, status in asked:
        answer = await http.post("/mcp", json=message, headers=headers)
        assert (answer.status_code, '"error":{' in answer.text) == (status, False), message
    assert (await http.delete("/mcp", headers=session)).status_code == 200


@requirement("OPS-370", "OPS-371", "FACE-240")
async def test_ordinary_clients_need_no_import_and_wait_for_none(tmp_path: Path) -> None:
    port = free_port()
    async with held(tmp_path, *serve(tmp_path, port)) as running, client(port) as http:
        await running.wait_for("ready on")
        assert (await http.get("/readyz")).status_code == 200
        # Streams are counted before there can be any.
        assert 'kind="streams_gateway"' in (await http.get("/metrics")).text
        await serve_ordinary(http)
        assert "loaded:" not in running.stdout
        # The first other request begins to import, and is answered when it is done; nobody else waits.
        asked = needs_sdk(http)
        assert sorted(await loaded_by(running) & set(LATE)) == []
        assert (await http.get("/readyz")).status_code == 200
        await serve_ordinary(http)
        assert not asked.done()
        (tmp_path / "go").touch()
        assert (await asked).status_code == 200
        assert (await asked).headers["mcp-session-id"]
        assert 'kind="streams_gateway"' in (await http.get("/metrics")).text
        assert await running.stop() == 0


@requirement("OPS-370")
async def test_who_has_no_key_begins_no_import(tmp_path: Path) -> None:
    port = free_port()
    async with held(tmp_path, *serve(tmp_path, port)) as running, client(port) as http:
        await running.wait_for("ready on")
        refused = await http.post("/mcp", content=b"{", headers={"Authorization": "Bearer nobody"})
        assert refused.status_code == 401
        assert "loaded:" not in running.stdout


@requirement("OPS-374", "OPS-376", "OPS-377")
async def test_what_the_configuration_does_not_use_is_not_imported(tmp_path: Path) -> None:
    port = free_port()
    async with held(tmp_path, *serve(tmp_path, port)) as running, client(port) as http:
        await running.wait_for("ready on")
        asked = needs_sdk(http)
        assert sorted(await loaded_by(running) & set(UNUSED)) == []
        # Each is a module that there is.
        assert [name for name in UNUSED | LATE if find_spec(name) is None] == []
        asked.cancel()


@requirement("OPS-371")
async def test_a_stop_does_not_wait_for_the_import_and_refuses_what_waits(tmp_path: Path) -> None:
    port = free_port()
    async with held(tmp_path, *serve(tmp_path, port)) as running, client(port) as http:
        await running.wait_for("ready on")
        asked = needs_sdk(http)
        await loaded_by(running)
        assert await running.stop() == 0
        refused = await asked
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == -32603


@requirement("OPS-303")
async def test_what_needs_an_sdk_that_cannot_be_imported_is_refused_and_the_service_is_not_ready(
    tmp_path: Path,
) -> None:
    (tmp_path / "fail").touch()
    (tmp_path / "go").touch()
    port = free_port()
    async with held(tmp_path, *serve(tmp_path, port)) as running, client(port) as http:
        await running.wait_for("ready on")
        for _ in range(2):
            refused = await needs_sdk(http)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, -32603)
            assert "until its operator has installed it again" in refused.json()["error"]["message"]
        assert "retry-after" not in refused.headers
        await serve_ordinary(http)
        assert (await http.get("/readyz")).status_code == 503
        assert "the SDK's part of the MCP doors cannot be opened" in running.stdout
        assert "no such thing" in running.stdout
        assert await running.stop() == 0


@requirement("OPS-303")
async def test_an_sdk_that_is_not_installed_ends_the_start(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['mcp_types'] = None\n{SERVE}"
    async with held(tmp_path, *serve(tmp_path, free_port()), code=code) as running:
        assert await running.ended() == 1
        assert "The MCP doors cannot be opened (no module named 'mcp_types')" in running.stderr


@requirement("OPS-372")
async def test_workers_are_forked_from_a_process_that_has_imported_it_all(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    config = write_config(tmp_path, upstreams=[], storage={"url": f"sqlite:///{tmp_path}/store.db"})
    args = ("serve", "--config", str(config), "--port", "0", "--workers", "2")
    async with held(tmp_path, *args) as running:
        await running.wait_for("ready on")
        assert running.stdout.count("loaded:") == 1
