"""What is kept of long calls in Redis, for all replicas (EXEC-47)."""

import logging

from wicketgate.gateway.kept_calls import StoreAway
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.names import hashed

log = logging.getLogger("wicketgate.calls")


class RedisCallStore:
    """Implements CallStore. Rows are as many as the places of long calls in all processes. The link is closed by its
    owner."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._failed = False

    async def put(self, owner: str, id: str, row: bytes, life_s: float) -> bool:
        name = self._name(owner, id)
        try:
            await self._link.run(lambda client: client.set(name, row, px=max(int(life_s * 1_000), 1)))
        except RedisAway as away:
            self._say("a long call is not kept", away)
            return False
        self._failed = False
        return True

    async def get(self, owner: str, id: str) -> bytes | None:
        name = self._name(owner, id)
        try:
            found: bytes | None = await self._link.run(lambda client: client.get(name))
        except RedisAway as away:
            self._say("a long call is not read", away)
            raise StoreAway from None
        self._failed = False
        return found

    async def drop(self, owner: str, id: str) -> None:
        name = self._name(owner, id)
        try:
            await self._link.run(lambda client: client.unlink(name))
        except RedisAway as away:
            log.debug("a long call is not removed: %s", away)

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    def _say(self, what: str, away: RedisAway) -> None:
        log.log(logging.DEBUG if self._failed else logging.ERROR, "%s: %s", what, away)
        self._failed = True

    def _name(self, owner: str, id: str) -> str:
        return self._link.names.key("call", hashed(owner), hashed(id))
