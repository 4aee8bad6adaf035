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

    async def put(self, owner: str, id: str, row: bytes, life_s: float) -> bool:
        name = self._name(owner, id)
        try:
            await self._link.run(lambda client: client.set(name, row, px=max(int(life_s * 1_000), 1)))
        except RedisAway as away:
            log.error("a long call is not kept: %s", away)
            return False
        return True

    async def get(self, owner: str, id: str) -> bytes | None:
        name = self._name(owner, id)
        try:
            found: bytes | None = await self._link.run(lambda client: client.get(name))
        except RedisAway as away:
            log.error("a long call is not read: %s", away)
            raise StoreAway from None
        return found

    async def drop(self, owner: str, id: str) -> None:
        name = self._name(owner, id)
        try:
            await self._link.run(lambda client: client.unlink(name))
        except RedisAway as away:
            log.debug("a long call is not removed: %s", away)

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    def _name(self, owner: str, id: str) -> str:
        return self._link.names.key("call", hashed(owner), hashed(id))
