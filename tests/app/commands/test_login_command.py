"""``wicketgate login``, ``connections`` and ``logout`` as processes, and a gate that uses the login."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.http_service import Reply, Seen
from tests.support.locked_server import Issuer
from tests.support.process import outcome, program
from tests.support.requirement import requirement
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.net import HttpClient, Outgoing, fetch


async def get(url: str) -> tuple[int, str]:
    async with HttpClient(Outgoing()) as http:
        reply = await fetch(http, "GET", url, {}, max_bytes=10_000)
    return reply.status, reply.headers.get("location", "")


def configured(folder: Path, on: Issuer, **more: object) -> Path:
    """The file of a gate with the server of an issuer."""
    file = folder / "wicketgate.yaml"
    settings = {"server": {"public_url": "http://127.0.0.1:1"}, "model": {"provider": "scripted"}}
    file.write_text(json.dumps({**settings, "upstreams": [{"name": "locked", "url": on.server_url, **more}]}))
    return file


@requirement("UP-151")
async def test_a_login_is_made_in_a_browser_used_by_the_gate_and_ended(tmp_path: Path) -> None:
    async with Issuer() as on:
        on.metadata["scopes_supported"] = ["offline_access"]
        file = configured(tmp_path, on, oauth={"scope": "read"})
        env = {"XDG_STATE_HOME": str(tmp_path)}

        async def run(*words: str) -> tuple[int, str, str]:
            return await outcome("app", *words, "--config", str(file), env=env)

        # Without a login, check says how to get one.
        code, out, err = await run("check")
        assert code == 1
        assert "wicketgate login locked" in out + err

        # The browser goes to the issuer and comes back; a stranger's request in between changes nothing.
        async with program("app", "login", "locked", "--no-browser", "--config", str(file), env=env) as running:
            page = (await running.wait_for(r"(?m)^(http://\S+/as/authorize\?\S+)$"))[1]
            back = (await running.wait_for(r"come back to (\S+)"))[1]
            assert (await get(f"{back}?code=stolen&state=guessed"))[0] == 400
            assert (await get(back.replace("/callback", "/other")))[0] == 404
            _, location = await get(page)
            assert location.startswith(back)
            assert (await get(location))[0] == 200
            assert await running.ended() == 0
            assert "logged in at" in running.stdout
            assert "access-" not in running.stdout + running.stderr

        code, out, _ = await run("connections", "--json")
        read = json.loads(out)["locked"]
        assert (code, read["issuer"], read["scopes"]) == (0, on.issuer, ["offline_access", "read"])
        code, out, err = await run("check")
        assert (code, "1 tool" in out + err) == (0, True), out + err

        code, _, _ = await run("logout", "locked")
        assert (code, on.revoked) == (0, ["refresh-1"])
        assert json.loads((await run("connections", "--json"))[1]) == {"locked": None}


@requirement("UP-146")
async def test_check_says_of_a_server_without_oauth_that_it_offers_a_login(tmp_path: Path) -> None:
    async with Issuer() as on:
        file = configured(tmp_path, on)
        code, out, err = await outcome("app", "check", "--config", str(file))
        said = " ".join((out + err).split())
        assert code == 1
        assert "it needs a login: write oauth: {} at this upstream, then wicketgate login locked" in said


@requirement("UP-151")
async def test_a_login_that_is_declined_is_said_so_and_not_kept(tmp_path: Path) -> None:
    async with Issuer() as on:
        on.comes_back = {"error": "access_denied"}
        file = configured(tmp_path, on, oauth={})
        env = {"XDG_STATE_HOME": str(tmp_path)}
        async with program("app", "login", "locked", "--no-browser", "--config", str(file), env=env) as running:
            page = (await running.wait_for(r"(?m)^(http://\S+/as/authorize\?\S+)$"))[1]
            _, location = await get(page)
            await asyncio.gather(get(location))
            assert await running.ended() == 1
            assert "the login was declined" in running.stderr
        assert not list(tmp_path.rglob("*.login"))


@requirement("ACCESS-313")
@pytest.mark.parametrize(
    ("command", "more"),
    [
        (("login", "locked", "--no-browser"), {"oauth": {}}),
        (("check",), {"credentials": "user"}),
    ],
)
async def test_an_issuer_that_the_operator_has_to_name_is_said(
    tmp_path: Path, command: tuple[str, ...], more: dict[str, object]
) -> None:
    async with Issuer() as on:
        on.metadata["authorization_response_iss_parameter_supported"] = None
        file = configured(tmp_path, on, **more)
        code, out, err = await outcome("app", *command, "--config", str(file), env={"XDG_STATE_HOME": str(tmp_path)})
        said = " ".join((out + err).split())
        assert code == 1
        assert f"oauth.issuer: {on.issuer}" in said
        assert not on.registered


class Narrow(Issuer):
    """Refuses calls of its tool whose token lacks a scope of *needs*."""

    needs = "mcp:write"

    def _mcp(self, seen: Seen) -> Reply:
        token = seen.headers.get("authorization", "").removeprefix("Bearer access-")
        message = json.loads(seen.body) if seen.body else {}
        if message.get("method") != "tools/call" or not token:
            return super()._mcp(seen)
        if self.needs not in self.authorized[int(token) - 1]["scope"].split():
            challenge = f'Bearer error="insufficient_scope", scope="{self.needs}"'
            return Reply(b'{"error": "insufficient_scope"}', 403, {"www-authenticate": challenge})
        result = {"content": [{"type": "text", "text": "done"}]}
        return Reply(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


@requirement("UP-210")
async def test_a_call_that_lacks_scopes_says_what_the_operator_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    on = Narrow()
    async with on:
        on.challenge += ', scope="mcp:basic"'
        entry: dict[str, object] = {"name": "locked", "url": on.server_url, "oauth": {}}
        file = tmp_path / "wicketgate.yaml"

        async def log_in() -> str:
            file.write_text(json.dumps({"upstreams": [entry]}))
            command = ("app", "login", "locked", "--no-browser", "--config", str(file))
            async with program(*command, env={"XDG_STATE_HOME": str(tmp_path)}) as running:
                page = (await running.wait_for(r"(?m)^(http://\S+/as/authorize\?\S+)$"))[1]
                await get((await get(page))[1])
                assert await running.ended() == 0, running.stderr
            return on.authorized[-1]["scope"]

        assert await log_in() == "mcp:basic"
        async with running_service(None, None, settings={"upstreams": [entry]}) as service:
            client, on.needs = WireClient(service), "mcp:write"
            refused = (await client.call("locked__open", {}))["result"]["structuredContent"]
            assert refused["error"] == "FORBIDDEN"
            assert "(mcp:write)" in refused["message"]
            assert "add them to oauth.scope, then: wicketgate login locked" in refused["message"]
            entry["oauth"] = {"scope": "mcp:write"}
            assert await log_in() == "mcp:write mcp:basic"
            assert (await client.call("locked__open", {}))["result"]["content"][0]["text"] == "done"
