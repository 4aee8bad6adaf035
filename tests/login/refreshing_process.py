"""A process of a service whose callers use the grant of ann: ``HOW STORE SPACE ISSUER``.

``hammer``: eight callers, until stdin ends; then one JSON line says how often they were answered. ``once``: writes
``written`` when the tokens that it has refreshed are kept, and stands still before it uses them.
"""

import asyncio
import json
import sys

import httpx

from tests.login.rotating_issuer import refresh_at
from tests.login.stores import credentials_for, made_grants, opened_rows, user_grants
from wicketgate.access.identity import Identity
from wicketgate.net import Credentials, Refusal

_CALLERS = 8


async def main(how: str, store: str, issuer: str) -> None:
    async with opened_rows(store) as rows, httpx.AsyncClient(timeout=20) as client:
        users = user_grants(made_grants(rows), refresh_at(client, issuer))
        credentials = credentials_for(users, await users.named(Identity("ann")))
        if how == "once":
            await credentials.authorization()
            print("written", flush=True)
            await asyncio.Event().wait()
        stop = asyncio.Event()
        answers: dict[int, int] = {}
        print("begun", flush=True)
        callers = [asyncio.create_task(_call(client, issuer, credentials, stop, answers)) for _ in range(_CALLERS)]
        await asyncio.to_thread(sys.stdin.read)
        stop.set()
        await asyncio.gather(*callers)
        await users.aclose()
        print(json.dumps(answers), flush=True)


async def _call(
    client: httpx.AsyncClient, issuer: str, credentials: Credentials, stop: asyncio.Event, answers: dict[int, int]
) -> None:
    while not stop.is_set():
        for attempt in (1, 2):
            header = await credentials.authorization()
            status = (await client.get(f"{issuer}/use", headers={"authorization": header})).status_code
            if status == 200 or attempt == 2:
                break
            await credentials.renew(Refusal(401))
        answers[status] = answers.get(status, 0) + 1
        await asyncio.sleep(0.05)  # all callers together are at the edge of a token's life many times a second


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
