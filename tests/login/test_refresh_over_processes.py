"""Several processes use one grant whose issuer ends it at the second use of a refresh token."""

import asyncio
import json
import signal
import time
from pathlib import Path

import httpx

from tests.login.rotating_issuer import RotatingIssuer, refresh_at, served
from tests.login.stores import BOND, credentials_for, made_grants, opened_rows, user_grants
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity

_PROCESSES = 3
_GENERATIONS = 3
_BOUND_S = 40.0


@requirement("ACCESS-158")
async def test_however_many_processes_use_a_grant_each_token_is_refreshed_once(store_url: str) -> None:
    with served(RotatingIssuer(life_s=1.5, slow_s=0.1)) as issuer:
        async with opened_rows(store_url) as rows:
            await made_grants(rows).keep("ann", "linear", issuer.first(), BOND)
        processes = [
            program("tests.login.refreshing_process", "hammer", store_url, issuer.url, stdin=asyncio.subprocess.PIPE)
            for _ in range(_PROCESSES)
        ]
        running = [await process.__aenter__() for process in processes]
        try:
            await asyncio.gather(*(each.wait_for("begun", "stdout") for each in running))
            await until(lambda: issuer.refreshes >= _GENERATIONS or issuer.dead, bound_s=_BOUND_S)
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

            async def expired() -> None:
                await until(
                    lambda: grants.of("ann", "linear"),
                    lambda found: found[0].tokens.expires_at <= time.time() + 0.1,
                    bound_s=_BOUND_S,
                )

            for killed in range(1, 4):
                await expired()
                async with program("tests.login.refreshing_process", "once", store, issuer.url) as process:
                    await process.wait_for("written", "stdout")
                    await process.stop(signal.SIGKILL)
                assert issuer.refreshes >= killed
            # The next process goes on with what the killed one had, and can refresh it.
            users = user_grants(grants, refresh_at(client, issuer.url))
            credentials = credentials_for(users, await users.named(Identity("ann")))
            for late in (False, True):
                if late:
                    await expired()
                header = await credentials.authorization()
                assert issuer.takes(header.removeprefix("Bearer "))
            assert (issuer.reuses, issuer.dead) == (0, False)
