"""Takes five places of an actor, says so, and holds them until it is killed. Arguments: the Redis or the file, the
space of names."""

import asyncio
import sys
import time
from pathlib import Path

from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.group_shares import GroupShares, PlaceStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.names import Names
from wicketgate.storage.redis.places import RedisPlaces
from wicketgate.storage.redis.url import is_redis, read_url
from wicketgate.storage.sqlite_places import SQLitePlaces

_LAPSE_S = 1.5


async def main(url: str, space: str) -> None:
    if is_redis(url):
        store: PlaceStore = RedisPlaces(RedisLink(read_url(url), names=Names(space)), "killed", _LAPSE_S)
    else:
        store = SQLitePlaces(Path(url), "killed", time.time, lapse_s=_LAPSE_S)
    shares = GroupShares("chat", 9, 5, store, FailModes(), renew_s=0.1)
    held = [await shares.take("bob") for _ in range(5)]
    print(len(held), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
