"""Several processes use one grant whose issuer ends it at the second use of a refresh token."""

import asyncio
import json
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.login.rotating_issuer import RotatingIssuer, refresh_at, served
from tests.login.stores import BOND, made_grants, opened_rows, user_grants
from tests.support.process import program
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity

_PROCESSES = 3
_GENERATIONS = 5
_BOUND_S = 40.0


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    with redis_server(tmp_path) as server:
        yield server.url


@requirement("ACCESS-158")
async def test_however_many_processes_use_a_grant_each_token_is_refreshed_once(store: str) -> None:
    space = secrets.token_hex(4)
    with served(RotatingIssuer(life_s=1.5, slow_s=0.1)) as issuer:
        async with opened_rows(store, space) as rows:
            await made_grants(rows).keep("ann", "linear", issuer.first(), BOND)
        processes = [
            program("tests.login.refreshing_process", "hammer", store, space, issuer.url, stdin=asyncio.subprocess.PIPE)
            for _ in range(_PROCESSES)
        ]
        running = [await process.__aenter__() for process in processes]
        try:
            await asyncio.gather(*(each.wait_for("begun", "stdout") for each in running))
            async with asyncio.timeout(_BOUND_S):
                while issuer.refreshes < _GENERATIONS and not issuer.dead:
                    await asyncio.sleep(0.05)
            assert not issuer.dead
            for each in running:
                assert each.process.stdin is not None
                each.process.stdin.close()
            answers = [json.loads((await each.wait_for(r"\{.*\}", "stdout"))[0]) for each in running]
        finally:
            for process in processes:
                await process.__aexit__(None, None, None)
        assert (issuer.reuses, issuer.too_early, issuer.dead) == (0, 0, False)
        assert all(set(each) == {"200"} for each in answers), answers
        assert issuer.used > _PROCESSES * _GENERATIONS


@requirement("ACCESS-159")
async def test_tokens_that_were_written_survive_the_kill_of_their_process(tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    with served(RotatingIssuer(life_s=2.0)) as issuer:
        async with opened_rows(store) as rows, httpx.AsyncClient() as client:
            grants = made_grants(rows)
            await grants.keep("ann", "linear", issuer.first(), BOND)
            for killed in range(1, 4):
                async with asyncio.timeout(_BOUND_S):
                    while (await grants.of("ann", "linear"))[0].tokens.expires_at > time.time() + 0.1:  # type: ignore[operator]
                        await asyncio.sleep(0.05)
                async with program("tests.login.refreshing_process", "once", store, "", issuer.url) as process:
                    await process.wait_for("written", "stdout")
                    await process.stop(signal.SIGKILL)
                assert issuer.refreshes >= killed
            # The next process goes on with what the killed one had, and can refresh it.
            users = user_grants(grants, refresh_at(client, issuer.url))
            credentials = users.of(await users.named(Identity("ann")))
            for _ in range(2):
                header = await credentials.authorization()
                assert issuer.takes(header.removeprefix("Bearer "))
                await asyncio.sleep(2.0)
            assert (issuer.reuses, issuer.dead) == (0, False)
