"""``wicketgate login``, ``connections`` and ``logout`` as processes, and a gate that uses the login."""

import asyncio
import json
from pathlib import Path

from tests.support.locked_server import Issuer
from tests.support.process import program
from tests.support.requirement import requirement
from wicketgate.net import Outgoing, fetch, make_http_client


async def get(url: str) -> tuple[int, str]:
    async with make_http_client(Outgoing()) as http:
        reply = await fetch(http, "GET", url, {}, max_bytes=10_000)
    return reply.status, reply.headers.get("location", "")


@requirement("UP-151")
async def test_a_login_is_made_in_a_browser_used_by_the_gate_and_ended(tmp_path: Path) -> None:
    async with Issuer() as on:
        on.metadata["scopes_supported"] = ["offline_access"]
        file = tmp_path / "wicketgate.yaml"
        file.write_text(
            json.dumps(
                {
                    "model": {"provider": "scripted"},
                    "upstreams": [{"name": "locked", "url": on.server_url, "oauth": {"scope": "read"}}],
                }
            )
        )
        env = {"XDG_STATE_HOME": str(tmp_path)}

        async def run(*words: str) -> tuple[int, str, str]:
            async with program("app", *words, "--config", str(file), env=env) as running:
                code = await running.ended()
                return code, running.stdout, running.stderr

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
        file = tmp_path / "wicketgate.yaml"
        upstream = {"name": "locked", "url": on.server_url}
        file.write_text(json.dumps({"model": {"provider": "scripted"}, "upstreams": [upstream]}))
        async with program("app", "check", "--config", str(file)) as running:
            assert await running.ended() == 1
            said = " ".join((running.stdout + running.stderr).split())
        assert "it needs a login: write oauth: {} at this upstream, then wicketgate login locked" in said


@requirement("UP-151")
async def test_a_login_that_is_declined_is_said_so_and_not_kept(tmp_path: Path) -> None:
    async with Issuer() as on:
        on.comes_back = {"error": "access_denied"}
        file = tmp_path / "wicketgate.yaml"
        file.write_text(json.dumps({"upstreams": [{"name": "locked", "url": on.server_url, "oauth": {}}]}))
        env = {"XDG_STATE_HOME": str(tmp_path)}
        async with program("app", "login", "locked", "--no-browser", "--config", str(file), env=env) as running:
            page = (await running.wait_for(r"(?m)^(http://\S+/as/authorize\?\S+)$"))[1]
            _, location = await get(page)
            await asyncio.gather(get(location))
            assert await running.ended() == 1
            assert "the login was declined" in running.stderr
        assert not list(tmp_path.rglob("*.login"))
